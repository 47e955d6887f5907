# Sourced by the scripts beside it: where the repository is, its virtual environment, and errors
# that are one line with the remedy. Knows nothing about what a script is for.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python

say() { printf '%s\n' "$*" >&2; }

die() {
    say "${0##*/}: $*"
    exit 1
}

# The first Python that is new enough; PYTHON=... chooses another.
find_python() {
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    die "no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python3 $0"
}

make_venv() {
    if "$python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    base=$(find_python)
    "$base" -c 'import venv, ensurepip' 2>/dev/null ||
        die "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv"
    say "making a virtual environment in .venv"
    "$base" -m venv "$venv" || die "cannot make $venv; is the folder writable?"
}

need_compiler() {
    for name in ${CC:-} cc gcc clang; do
        if command -v "$name" >/dev/null 2>&1; then
            return
        fi
    done
    die "no C compiler found; on Debian and Ubuntu: apt install build-essential," \
        "on macOS: xcode-select --install"
}

# What the native library and the environment are made from, as one number.
build_inputs() {
    (cd "$root" && find pyproject.toml CMakeLists.txt native tools -type f | LC_ALL=C sort |
        xargs cksum | cksum)
}

# pip_install ARGUMENTS...: quiet unless it fails.
pip_install() {
    mkdir -p "$root/build"
    "$python" -m pip install --disable-pip-version-check "$@" >"$root/build/install.log" 2>&1 ||
        die "pip failed; check the network and run it again (its output: build/install.log):" \
            "$(grep -i error "$root/build/install.log" | tail -1)"
}

# The environment for developing: tools, and the package in place. Does nothing when it is current.
setup_dev() {
    make_venv
    stamp=$venv/.edgeserve-dev
    key=$(build_inputs)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
        return
    fi
    need_compiler
    say "installing the development tools and edgeserve into .venv (a minute the first time)"
    pip_install 'pip>=25.1' # the first that knows dependency groups
    pip_install --group "$root/pyproject.toml:dev"
    pip_install --no-build-isolation --editable "$root"
    printf '%s\n' "$key" >"$stamp"
}
