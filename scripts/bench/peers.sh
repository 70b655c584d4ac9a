#!/usr/bin/env bash
# Exports a dataset and lets the peers read it: what each says, next to kvtrace's capacity curve.
#
# usage: scripts/bench/peers.sh DATASET [BLOCKS]
# PEERS is a folder with one environment a peer, made once:
#   python3 -m venv "$PEERS/kvs" && "$PEERS/kvs/bin/pip" install kvcache-simulator==0.1.3
#   python3 -m venv "$PEERS/aiperf" && "$PEERS/aiperf/bin/pip" install aiperf==0.13.0
#   python3 -m venv "$PEERS/dyn" && "$PEERS/dyn/bin/pip" install --no-deps ai-dynamo==1.6.1 \
#     ai-dynamo-runtime==1.6.1 && "$PEERS/dyn/bin/pip" install "pydantic>=2.10.6,<=2.13.5" uvloop \
#     aiohttp msgspec prometheus-client pyzmq tqdm typing-extensions zstandard transformers numpy
set -euo pipefail

dataset=${1:?usage: peers.sh DATASET [BLOCKS]}
blocks=${2:-20000}
peers=${PEERS:?set PEERS to the folder of the peers\' environments}
kvtrace=${KVTRACE:-kvtrace}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$kvtrace" query "$dataset" reuse/capacity_curve -p "capacities=$blocks,1000000000"

if [ -x "$peers/kvs/bin/kvcache-simulator" ]; then
  "$kvtrace" export "$dataset" --to kvcache-simulator -o "$work/kvs.jsonl"
  # It reports the last half of the requests.
  "$peers/kvs/bin/kvcache-simulator" run --trace "$work/kvs.jsonl" --no-progress --policies lru \
    --model "${MODEL:-llama-3.1-70b}"
fi

if [ -x "$peers/aiperf/bin/aiperf" ]; then
  "$kvtrace" export "$dataset" --to aiperf -o "$work/aiperf.jsonl" 2> "$work/said"
  cat "$work/said" >&2
  size=$(sed -n 's/.*, \([0-9]*\) tokens a block$/\1/p' "$work/said")
  # Its hit rate is the mean over requests of reusable blocks: `reusable_ratio_requests_mean_blocks`.
  "$kvtrace" query "$dataset" reuse/summary
  "$peers/aiperf/bin/aiperf" analyze-trace "$work/aiperf.jsonl" --block-size "$size"
fi

if [ -x "$peers/dyn/bin/python" ]; then
  "$kvtrace" export "$dataset" --to dynamo -o "$work/dynamo.jsonl" 2> "$work/said"
  cat "$work/said" >&2
  size=$(sed -n 's/.*, \([0-9]*\) tokens a block$/\1/p' "$work/said")
  DYN_LOG=error RUST_LOG=error "$peers/dyn/bin/python" - "$work/dynamo.jsonl" "$size" "$blocks" <<'PY'
import sys

from dynamo.replay import run_trace_replay

path, size, blocks = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
engine = {"block_size": size, "num_gpu_blocks": blocks, "kv_cache_bytes_per_token": 1000}
report = run_trace_replay(
    path, trace_block_size=size, num_workers=1, extra_engine_args={"engine": engine}
)
for name in ("completed_requests", "prefix_cache_reused_ratio"):
    print(name, report.summary[name])
PY
fi
