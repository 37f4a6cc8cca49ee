#!/usr/bin/env bash
# A program's ranks on one machine, with a real, slow network between them:
#   perf/throttled/run.sh [--rate 1gbit] [--ranks 2] [--per-node 1] [--burst BYTES] PROGRAM ARGUMENT...
# Every rank (--per-node: so many) runs in a network namespace of its own, as if on a node of its own. The namespaces are joined by a bridge;
# what each sends is limited to --rate (tc's units; none: unlimited). --burst is what may pass at once after a pause, beyond the
# rate: 2 ms of it unless given (more hides short messages' time), but 72 KiB at least (with less, the limiter cuts packets). After the
# run, each prints on stderr the bytes that it sent. Needs root, iproute2, Open MPI. Ranks get one thread each unless OMP_NUM_THREADS says otherwise.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rate=1gbit ranks=2 each=1 burst=
while [[ $# -ge 2 && $1 == --* ]]; do
  case $1 in
    --rate) rate=$2 ;;
    --ranks) ranks=$2 ;;
    --per-node) each=$2 ;;
    --burst) burst=$2 ;;
    *) echo "run.sh: expected --rate, --ranks, --per-node or --burst, found '$1'" >&2; exit 2 ;;
  esac
  shift 2
done
[[ $# -ge 1 ]] || { echo "run.sh: expected a program to run" >&2; exit 2; }
[[ $ranks =~ ^[1-9][0-9]*$ && $ranks -le 200 ]] || { echo "run.sh: expected --ranks from 1 to 200, found '$ranks'" >&2; exit 2; }
[[ $each =~ ^[1-9][0-9]*$ && $((ranks % each)) == 0 ]] || { echo "run.sh: expected --per-node that divides --ranks $ranks, found '$each'" >&2; exit 2; }
nodes=$((ranks / each))
[[ $(id -u) == 0 ]] || { echo "run.sh: network namespaces need root" >&2; exit 2; }
for tool in ip tc mpirun; do
  command -v $tool > /dev/null || { echo "run.sh: there is no '$tool': install iproute2 and Open MPI" >&2; exit 2; }
done

# Bytes of 2 ms, of a rate in gbit or mbit.
burst_of() { awk -v rate="$1" 'BEGIN { bytes = 250 * rate * (rate ~ /gbit$/ ? 1000 : rate ~ /mbit$/); if (bytes < 73728) bytes = 73728; print int(bytes) }'; }
if [[ -z $burst ]]; then burst=$(burst_of "$rate"); fi

id=$$ bridge=ssnb$$
down() {
  for ((i = 1; i <= nodes; ++i)); do ip netns del "ssn$id-$i" 2> /dev/null || true; done
  ip link del "$bridge" 2> /dev/null || true
}
trap down EXIT
trap 'exit 130' INT TERM

ip link add "$bridge" type bridge
ip link set "$bridge" up
hosts=
for ((i = 1; i <= nodes; ++i)); do
  space=ssn$id-$i
  ip netns add "$space"
  ip link add "sv$id-$i" type veth peer name eth0 netns "$space"
  ip link set "sv$id-$i" master "$bridge" up
  ip -n "$space" addr add "10.77.0.$i/24" dev eth0
  ip -n "$space" link set eth0 up
  ip -n "$space" link set lo up
  # The default congestion control measures the link, and takes the limiter for a long queue.
  ip netns exec "$space" sysctl -qw net.ipv4.tcp_congestion_control=reno
  [[ $rate == none ]] || ip netns exec "$space" tc qdisc add dev eth0 root tbf rate "$rate" burst "$burst" latency 50ms
  hosts+=10.77.0.$i:$each,
done

export SSN_THROTTLED_ID=$id OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
btl=self,tcp
((each == 1)) || btl+=,vader  # within a node
status=0
ip netns exec "ssn$id-1" unshare --uts bash -c 'hostname ssn1; exec "$@"' _ \
  mpirun -n "$ranks" -H "${hosts%,}" --bind-to none --mca plm rsh --mca plm_rsh_agent "$here/enter.sh" \
  --mca oob_tcp_if_include eth0 --mca pml ob1 --mca btl "$btl" --mca btl_tcp_if_include eth0 \
  -x OMPI_ALLOW_RUN_AS_ROOT -x OMPI_ALLOW_RUN_AS_ROOT_CONFIRM -x OMP_NUM_THREADS "$@" || status=$?
for ((i = 1; i <= nodes; ++i)); do
  echo "$([[ $each == 1 ]] && echo "rank $((i - 1))" || echo "node $i") sent $(ip netns exec "ssn$id-$i" cat /sys/class/net/eth0/statistics/tx_bytes) bytes" >&2
done
exit "$status"
