#!/bin/bash
# No mutation survives that is not told to be equivalent.
set -euo pipefail

cd "$(dirname "$0")/../.."
exec tests/mutate -j "$(nproc)"
