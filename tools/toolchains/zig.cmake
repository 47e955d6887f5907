# Included by the toolchain files beside it, which set `zig_target`: zig carries the headers and
# libraries of every system it knows.
#   pip install --group cross
find_program(EDGESERVE_ZIG NAMES python-zig zig REQUIRED)
set(CMAKE_C_COMPILER ${EDGESERVE_ZIG} cc -target ${zig_target})
