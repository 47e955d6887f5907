# Windows on 64-bit x86:
#   cmake -S . -B build/x86_64-windows --toolchain tools/toolchains/x86_64-windows.cmake
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(zig_target x86_64-windows-gnu)
include(${CMAKE_CURRENT_LIST_DIR}/zig.cmake)
