#!/bin/sh
# Trains with N members of `starling` on this machine, a thread each, and prints what the founder says at the end.
#   usage: beside.sh STARLING N FLAGS-OF-RUN...
# The joiners take the run's data from the founder.
set -eu
starling=$1 members=$2
shift 2
dir=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$dir"' EXIT
export RAYON_NUM_THREADS=1
"$starling" run "$@" --min-peers "$members" --share-data --checkpoint-every 0 --device cpu --data-dir "$dir/1" \
    --listen /ip4/127.0.0.1/tcp/0 --show-ticket --json > "$dir/1.log" &
founder=$!
until grep -q '"ticket"' "$dir/1.log"; do
    kill -0 $founder
    sleep 0.1
done
ticket=$(sed -n 's/.*"ticket":"\([^"]*\)".*/\1/p' "$dir/1.log" | head -n 1)
for member in $(seq 2 "$members"); do
    echo "$ticket" | "$starling" join - --device cpu --data-dir "$dir/$member" --listen /ip4/127.0.0.1/tcp/0 --quiet > /dev/null &
    joiners="${joiners:-} $!"
done
# Whoever fails ends all.
for joiner in $joiners; do
    wait "$joiner"
done
wait $founder
grep '"finished"' "$dir/1.log"
