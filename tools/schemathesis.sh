#!/bin/sh
# Asks a running server at random what its OpenAPI document describes, wrong bodies and answers
# chained to answers included, and names every 5xx and every answer that is not as described.
#     tools/schemathesis.sh [BASE_URL] [MINUTES] [MORE OPTIONS OF schemathesis run…]
# Some inputs are hard to make up (filter_too_much): that is no finding about the server.
# The server is one of `edgeserve serve MODEL`, best with a small model and context.
set -eu
url=${1:-http://127.0.0.1:8080}
minutes=${2:-10}
[ $# -lt 2 ] || shift
[ $# -lt 1 ] || shift
root=$(cd "$(dirname "$0")/.." && pwd)
PATH=$root/.venv/bin:$PATH
checks=not_a_server_error,status_code_conformance,content_type_conformance
checks=$checks,response_headers_conformance,response_schema_conformance
exec schemathesis run "$url/v1/openapi.json" --checks "$checks" --max-time "$((minutes * 60))" \
    --continue-on-failure --request-timeout 120 --suppress-health-check filter_too_much "$@"
