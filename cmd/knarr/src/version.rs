//! `knarr version`.

use std::io::Write;

/// The release whose behaviour this binary has.
pub(crate) const KUBERNETES: &str = "v1.37.1";

pub(crate) fn run() -> anyhow::Result<()> {
    writeln!(
        std::io::stdout(),
        "knarr v{} (Kubernetes {KUBERNETES})",
        env!("CARGO_PKG_VERSION")
    )?;
    Ok(())
}
