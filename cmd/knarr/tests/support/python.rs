//! Python with the client library that people install.

use super::kubectl::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The package and its version; the folder it is installed in carries both.
const PACKAGE: &str = "kubernetes==37.0.2";

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A Python that has the package; made once beside the build's other outputs.
pub(crate) fn python_or_skip(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(PACKAGE);
    let python = folder.join("bin/python");
    let has_it = |python: &Path| {
        succeeds(
            Command::new(python)
                .args(["-c", "import kubernetes"])
                .stderr(Stdio::null()),
        )
    };
    if has_it(&python) {
        return Some(python);
    }
    let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        && succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet", PACKAGE]));
    if made && has_it(&python) {
        return Some(python);
    }
    skipped(
        test,
        &format!("no python3 with venv and pip, or no way to {PACKAGE}"),
    );
    None
}
