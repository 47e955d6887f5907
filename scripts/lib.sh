# Sourced by the scripts beside it: where the repository is, its virtual environment, and errors
# that are one line with the remedy. Knows nothing about what a script is for.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python
install_log=$root/build/install.log

say() { printf '%s\n' "$*" >&2; }

die() {
    say "${0##*/}: $*"
    exit 1
}

# --- Python ----------------------------------------------------------------------------------------

# The first Python that is new enough; EDGESERVE_PYTHON chooses another.
find_python() {
    if [ -n "${EDGESERVE_PYTHON:-}" ]; then
        is_new_enough "$EDGESERVE_PYTHON" ||
            die "EDGESERVE_PYTHON=$EDGESERVE_PYTHON is no Python 3.11 or newer; name another"
        printf '%s\n' "$EDGESERVE_PYTHON"
        return
    fi
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    die "no Python 3.11 or newer found; install one, or name it: EDGESERVE_PYTHON=/path/to/python3"
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Which Python this is; a virtual environment's is that of the one that made it.
identity() { "$1" -c 'import sys; print(sys.base_prefix, *sys.version_info[:3])' 2>/dev/null; }

make_venv() {
    if "$python" -m pip --version >/dev/null 2>&1 &&
        [ "$(identity "${EDGESERVE_PYTHON:-$python}")" = "$(identity "$python")" ]; then
        return
    fi
    base=$(find_python)
    "$base" -c 'import venv, ensurepip' 2>/dev/null ||
        die "Python's venv module is missing; on Debian and Ubuntu: apt install python3-venv"
    say "making a virtual environment in $venv"
    "$base" -m venv --clear "$venv" || die "cannot make $venv; is the folder writable?"
}

# --- compilers -------------------------------------------------------------------------------------

# compiles LANGUAGE HEADER COMMANDS...: whether one of them is a compiler with its headers.
compiles() {
    language=$1 header=$2
    shift 2
    for name in "$@"; do
        if printf '#include <%s>\n' "$header" |
            $name -x "$language" -fsyntax-only - >/dev/null 2>&1; then
            return
        fi
    done
    return 1
}

need_compiler() {
    compiles c stdio.h ${CC:+"$CC"} cc gcc clang ||
        die "no working C compiler found; on Debian and Ubuntu: apt install build-essential," \
            "on macOS: xcode-select --install"
}

# --- installing ------------------------------------------------------------------------------------

# What the native library and the environment are made from, as one line.
build_inputs() {
    (cd "$root" && find pyproject.toml CMakeLists.txt native tools -type f ! -name '*.pyc' |
        LC_ALL=C sort | xargs cksum | cksum)
    printf '%s\n' "$root"
    identity "${EDGESERVE_PYTHON:-$python}"
}

# is_current STAMP: whether what was installed under that name is what would be installed now.
is_current() { [ "$(cat "$venv/$1" 2>/dev/null)" = "$(build_inputs)" ]; }

stamp() { build_inputs >"$venv/$1"; }

# pip_install ARGUMENTS...: of what pip says, the large downloads and the builds are passed on.
pip_install() {
    mkdir -p "$root/build"
    {
        "$python" -m pip install --disable-pip-version-check --no-input --retries 2 "$@" 2>&1 &&
            echo 'pip: done'
    } | tee "$install_log" | while read -r line; do
        case $line in
        'Downloading '*MB*) say "  ${line%% (*} (${line##*(}" ;;
        'Building '*started) say "  ${line%% (*}" ;;
        'Installing collected'*) say '  Installing' ;;
        esac
    done
    [ "$(tail -n 1 "$install_log")" = 'pip: done' ] || die "$(why_pip_failed)"
}

why_pip_failed() {
    if grep -Eqi 'NewConnectionError|NameResolutionError|ProxyError|ConnectTimeout|ReadTimeout|SSLError' \
        "$install_log"; then
        echo "the package index cannot be reached; check the network and pip's configuration," \
            "then run it again (pip's output: $install_log)"
    else
        echo "pip failed: $(grep -i error "$install_log" | tail -n 1)" \
            "(all of its output: $install_log)"
    fi
}

# The environment for running: the package in place. Does nothing when it is current.
setup_run() {
    if is_current .edgeserve-run; then
        return
    fi
    make_venv
    need_compiler
    say "building and installing edgeserve into $venv (minutes the first time)"
    pip_install 'pip>=25.1' # the first that knows dependency groups
    # The build's own tools stay in the environment: the next build compiles what has changed.
    pip_install --group "$root/pyproject.toml:build"
    pip_install --no-build-isolation --editable "$root"
    stamp .edgeserve-run
    say "installed; to have the edgeserve command in this shell: . $venv/bin/activate"
}

# The environment for developing: tools besides. Does nothing when it is current.
setup_dev() {
    setup_run
    if is_current .edgeserve-dev; then
        return
    fi
    say "installing the development tools into $venv (minutes the first time)"
    pip_install --group "$root/pyproject.toml:dev"
    stamp .edgeserve-dev
}
