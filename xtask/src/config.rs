//! Settings of the environment, read once.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Paths of the repository and of tools.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The root of this repository.
    pub root: PathBuf,
    /// Folder of upstream's programs: `$KNARR_TOOLS`, or `knarr/tools` in the user's cache.
    pub tools: PathBuf,
}

impl Config {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the config.rs the rule asks for"
    )]
    pub(crate) fn read() -> Result<Self> {
        // As cargo says it to a program it runs: what was compiled in is another tree's when its target directory was copied.
        let package =
            std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
        let root = PathBuf::from(package)
            .parent()
            .context("xtask lies in the root")?
            .to_owned();
        let tools = match (
            std::env::var("KNARR_TOOLS"),
            std::env::var("XDG_CACHE_HOME"),
            std::env::var("HOME"),
        ) {
            (Ok(tools), _, _) => PathBuf::from(tools),
            (_, Ok(cache), _) => PathBuf::from(cache).join("knarr/tools"),
            (_, _, Ok(home)) => PathBuf::from(home).join(".cache/knarr/tools"),
            _ => anyhow::bail!("neither KNARR_TOOLS, XDG_CACHE_HOME nor HOME is set"),
        };
        Ok(Self { root, tools })
    }
}
