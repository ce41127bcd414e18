//! Images that the specs run, made here of Debian packages and upstream's Go modules, since their own registry may be out of
//! reach: stand-ins that have what the specs look at.
//!
//! [`layers`] makes layers, [`programs`] what Debian does not have, [`root`] a system of Debian packages, [`storage`] the files of
//! a registry; [`table`] says which image has which layers. Everything is kept in a folder beside upstream's programs, and made
//! again when the recipe has changed.

mod folder;
mod layers;
mod programs;
mod root;
mod storage;
mod table;

use crate::config::Config;
use crate::{packages, process, tools};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};

/// Debian packages of the images' making, and of their registry.
const PACKAGES: &[&str] = &[
    "golang-go",
    "bzip2",
    "ca-certificates",
    "curl",
    "debootstrap",
    "docker-registry",
    "gcc",
    "libc6-dev",
    "make",
    "xz-utils",
];

/// Upstream's programs in the images.
const TOOLS: &[&str] = &["agnhost", "etcd", "sample-apiserver", "nonewprivs"];

/// The images, ready to be served.
#[derive(Debug)]
pub(super) struct Images {
    /// Names by which specs know them.
    pub references: Vec<String>,
    /// The registry's files.
    pub storage: PathBuf,
}

/// Makes what is not there.
pub(super) fn ensure(config: &Config) -> Result<Images> {
    packages::ensure(packages::NODE)?;
    packages::ensure(PACKAGES)?;
    tools::ensure(config, TOOLS)?;
    let folder = config.tools.with_file_name("images");
    fs::create_dir_all(&folder)?;
    let images = Images {
        references: table::references(),
        storage: folder.join("registry"),
    };
    let recipe = format!("{}\n{:#?}\n", tools::pins(config, TOOLS)?, table::IMAGES);
    once(&folder, "registry", &recipe, || {
        layers::make_all(config, &folder)?;
        storage::write(&folder, &images.storage)
    })?;
    Ok(images)
}

/// Runs `make` unless it has ended well with this recipe before. Its image has to bear `name`.
fn once(folder: &Path, name: &str, recipe: &str, make: impl FnOnce() -> Result<()>) -> Result<()> {
    let pin = folder.join(format!(".{name}.pin"));
    let made = folder.join(name).try_exists()? && fs::read_to_string(&pin).is_ok_and(|pin| pin == recipe);
    if made {
        return Ok(());
    }
    println!("==> images: {name} (once)");
    make()?;
    Ok(fs::write(pin, recipe)?)
}

/// The digest of a file, in hexadecimal.
fn digest(file: &Path) -> Result<String> {
    let line = process::output(process::command("sha256sum").arg(file))?;
    Ok(line.split(' ').next().unwrap_or_default().to_owned())
}
