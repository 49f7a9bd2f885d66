#!/usr/bin/env bash
# What a pull request must pass. Needs `pip install attention-equivalence`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
report=$(mktemp)
trap 'rm -f "$report"' EXIT
equivalence check acme.kernels:attention --examples 40 --json "$report" || true # the gate judges
equivalence gate --baseline baseline.json "$report"
