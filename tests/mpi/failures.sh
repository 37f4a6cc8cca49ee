#!/bin/bash
# usage: failures.sh MPIRUN PROGRAM
# Starts PROGRAM on three ranks in each of its ways to fail; checks the exit code, what is printed and how often.
mpirun=$1 program=$2 failed=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# expect EXIT_CODE TIMES LINE WAY [VAR=VALUE]: mpirun's exit code, and how often LINE is printed (as a whole line).
expect() {
  local code=$1 times=$2 line=$3 way=$4 setting=${5:-SSN_DEBUG=0} start=$SECONDS
  env "$setting" timeout 40 "$mpirun" -n 3 "$program" "$way" >"$output" 2>&1
  local rc=$? found
  found=$(grep -cxF -- "$line" "$output")
  local all
  all=$(grep -cE '^(error|warning)' "$output")
  if [[ ! $rc =~ ^($code)$ || $found != "$times" || $all != "$times" ]]; then
    echo "FAILED: $way: exit code $rc (expected $code), '$line' $found times (expected $times) of $all messages"
    cat "$output"
    failed=1
  else
    echo "ok: $way ($((SECONDS - start)) s)"
  fi
}

expect 0 0 error none
expect 75 0 error stopped
expect 2 1 "error: [budget] it is -1" "usage on all"
expect 1 1 "error: [read] no such file" "error on all"
expect 1 1 "error on rank 1: out of luck" "one while others sum"
expect 1 1 "error on rank 1: out of luck" "one while others sum" SSN_SUM=allreduce
expect 1 1 "error on rank 2: [write] the disk is full" "one before the end"
expect 1 1 "error on rank 0: [write] the disk is full" "one while others compute"
expect "134|6|15" 0 error "one dies"  # Open MPI: as the rank ended; MPICH: its signal, or that which ended the others
expect 2 1 "error: [start MPI] SSN_SUM must be window, allreduce or hierarchical, found 'ring'" none SSN_SUM=ring

# Tasks that do not know of each other.
for setting in "SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=0" "PMI_SIZE=3 PMI_RANK=0"; do
  # shellcheck disable=SC2086
  env $setting timeout 20 "$program" none >"$output" 2>&1
  rc=$?
  if [[ $rc != 2 ]] || ! grep -q "^error: .*several tasks were started" "$output"; then
    echo "FAILED: $setting: exit code $rc"
    cat "$output"
    failed=1
  fi
done

# Ranks that hang, with a timeout of 2 s.
waits() { echo "error: $1 not come to 'sum over ranks' for 2 s: $2; $3 in 'sum over ranks'"; }
alive="alive, but it does not get on" lifeless="no sign of life (stopped, dead or cut off)"
for sum in window allreduce; do
  expect 1 1 "$(waits 'rank 1 has' "$alive" 'ranks 0, 2 wait')" "one sleeps" SSN_SUM=$sum
  expect 1 1 "$(waits 'ranks 1, 2 have' "$lifeless" 'rank 0 waits')" "two stop" SSN_SUM=$sum
done
expect 1 1 "$(waits 'rank 1 has' "$alive" 'ranks 0, 2 wait')" "one loops"
expect 1 1 "$(waits 'rank 0 has' "$lifeless" 'rank 1 waits')" "the first stops"
expect 0 1 "warning: rank 0 writes files for 2 s, and the others wait for it" "one is busy"
expect 0 0 warning "one computes"
exit $failed
