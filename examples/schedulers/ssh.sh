#!/bin/bash
# Starts tandem on several hosts by ssh.
#   ssh.sh HOST,HOST,... [ARGUMENTS OF tandem train]
# Each host needs tandem in its PATH, and the token file in the home folder. Ranks find
# each other at port 29500 of the first host.
set -eu
IFS=, read -ra hosts <<< "$1"
shift
trap 'kill $(jobs -p) 2> /dev/null' INT TERM
for number in "${!hosts[@]}"; do
  # With -tt, tandem gets SIGHUP when ssh ends. It then saves a checkpoint and stops.
  ssh -tt "${hosts[number]}" tandem train "${@@Q}" \
    --nnodes "${#hosts[@]}" --node-rank "$number" \
    --master-addr "${hosts[0]}" --master-port "${MASTER_PORT:-29500}" \
    --token-file "${TANDEM_TOKEN_FILE:-token}" < /dev/null &
done
code=0
for job in $(jobs -p); do
  wait "$job" || code=$?
done
exit "$code"
