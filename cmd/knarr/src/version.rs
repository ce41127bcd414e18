//! `knarr version`.

use std::io::Write;

use machinery_meta::version::KUBERNETES;

pub(crate) fn run() -> anyhow::Result<()> {
    writeln!(
        std::io::stdout(),
        "knarr v{} (Kubernetes {KUBERNETES})",
        env!("CARGO_PKG_VERSION")
    )?;
    Ok(())
}
