#!/usr/bin/env bash
# For mpirun, in place of ssh: enter.sh 10.77.0.K COMMAND...: runs it in the K-th namespace of run.sh, as another host.
number=${1##*.}
shift
exec ip netns exec "ssn$SSN_THROTTLED_ID-$number" unshare --uts bash -c "hostname ssn$number; $*"
