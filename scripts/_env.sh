# Shared by the scripts: find a Python, make an environment from a lock, keep it while the lock stands.
# Sourced, not run; needs `root` set by the caller.

# Print the first Python >= 3.11 on this machine, or say clearly that there is none.
find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    echo "error: kvtrace needs Python 3.11 or newer, and none was found" >&2
    echo "hint: install python3.11 or newer, or name one: PYTHON=/path/to/python3 $0" >&2
    return 2
}

# sha256 of the files named, in order; one word.
fingerprint() {
    "$python" - "$@" <<'PY'
import hashlib, pathlib, sys

digest = hashlib.sha256(sys.version.encode())
for name in sys.argv[1:]:
    path = pathlib.Path(name)
    inside = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    for file in inside:
        if "__pycache__" not in file.parts:
            digest.update(f"{file}\0".encode())
            digest.update(file.read_bytes())
print(digest.hexdigest())
PY
}

# Make the environment $1 hold exactly the locks named after it; nothing to do while they are the same.
# pip's words go to stderr, so that a script's stdout stays its own.
sync_environment() {
    local env=$1 wanted
    shift
    wanted=$(fingerprint "$@")
    if [ "$(cat "$env/locks.sha256" 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    rm -rf "$env"
    echo "making ${env#"$root"/} with $("$python" --version) ..." >&2
    if ! "$python" -m venv "$env" >&2; then
        rm -rf "$env"
        echo "error: $python cannot make a virtual environment" >&2
        echo "hint: on Debian and Ubuntu its package is python3-venv" >&2
        return 2
    fi
    local lock arguments=()
    for lock in "$@"; do arguments+=(-r "$lock"); done
    "$env/bin/python" -m pip --disable-pip-version-check install --quiet --no-input \
        --require-hashes "${arguments[@]}" >&2
    echo "$wanted" > "$env/locks.sha256"
}

# Install this project into the environment $1 without asking the network; more arguments go to pip.
install_project() {
    local env=$1
    shift
    "$env/bin/python" -m pip --disable-pip-version-check install --quiet --no-input \
        --no-deps --no-build-isolation --force-reinstall "$@" >&2
}

# The developers' environment .venv: the dev lock and this checkout, editable. Sets `env`.
dev_environment() {
    env="$root/.venv"
    sync_environment "$env" "$root/requirements/dev.txt"
    local project
    project=$(fingerprint "$root/pyproject.toml")
    if [ "$(cat "$env/project.sha256" 2>/dev/null)" != "$project" ]; then
        install_project "$env" --editable "$root"
        echo "$project" > "$env/project.sha256"
    fi
}
