//! Layers of the images: each a folder that is filled here, and packed.

use super::folder::remove;
use super::programs::{self, install, install_busybox};
use super::{digest, root};
use crate::config::Config;
use crate::{process, tools};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Sources of the files in layers.
struct Sources<'a> {
    tools: &'a Path,
    busybox: PathBuf,
    pause: PathBuf,
    /// Folders of upstream's images in its module.
    images: PathBuf,
    root: PathBuf,
}

type Fill = fn(&Sources<'_>, &Path) -> Result<()>;

/// Layers by name, each with the function that fills it.
const LAYERS: &[(&str, Fill)] = &[
    ("agnhost", agnhost),
    ("nautilus", |sources, folder| page(sources, folder, "nautilus")),
    ("kitten", |sources, folder| page(sources, folder, "kitten")),
    ("busybox", busybox),
    ("nonewprivs", |sources, folder| {
        // Set-user-id, which the spec is about.
        let program = sources.tools.join("nonewprivs");
        install(&program, &folder.join("usr/local/bin/nnp"), 0o6755)
    }),
    ("sample-apiserver", |sources, folder| {
        let program = sources.tools.join("sample-apiserver");
        install(&program, &folder.join("sample-apiserver"), 0o755)
    }),
    ("etcd", |sources, folder| {
        install(
            &sources.tools.join("etcd"),
            &folder.join("usr/local/bin/etcd"),
            0o755,
        )
    }),
    ("pause", |sources, folder| {
        install(&sources.pause, &folder.join("pause"), 0o755)
    }),
];

/// The layer that Debian's packages make.
const ROOT: &str = "root";

/// A packed layer.
#[derive(Debug)]
pub(super) struct Layer {
    pub file: PathBuf,
    /// Digest before packing.
    pub diff_id: String,
}

/// Reports whether a layer of this name is made.
#[cfg(test)]
pub(super) fn is_made(name: &str) -> bool {
    name == ROOT || LAYERS.iter().any(|(layer, _)| *layer == name)
}

/// Makes all layers.
pub(super) fn make_all(config: &Config, folder: &Path) -> Result<()> {
    let busybox = programs::busybox(folder)?;
    let system = folder.join(ROOT);
    super::once(folder, ROOT, "1", || {
        remove(&system)?;
        root::make(&system, &busybox)
    })?;
    let sources = Sources {
        tools: &config.tools,
        pause: programs::pause(config, folder)?,
        busybox,
        images: tools::module(config, "k8s.io/kubernetes")?.join("test/images"),
        root: system,
    };
    let packed = folder.join("layers");
    remove(&packed)?;
    fs::create_dir_all(&packed)?;
    pack(&sources.root, &packed, ROOT, &[])?;
    let staged = folder.join("staged");
    for (name, fill) in LAYERS {
        remove(&staged)?;
        fs::create_dir_all(&staged)?;
        fill(&sources, &staged).with_context(|| format!("filling the layer {name}"))?;
        pack(&staged, &packed, name, &["--owner=0", "--group=0"])?;
    }
    remove(&staged)
}

/// The packed layer of that name.
pub(super) fn read(folder: &Path, name: &str) -> Result<Layer> {
    let packed = folder.join("layers");
    Ok(Layer {
        file: packed.join(format!("{name}.tar.gz")),
        diff_id: fs::read_to_string(packed.join(format!("{name}.diff")))?,
    })
}

fn pack(from: &Path, to: &Path, name: &str, owners: &[&str]) -> Result<()> {
    let plain = to.join(format!("{name}.tar"));
    let mut tar = process::command("tar");
    tar.args(["--create", "--sort=name", "--numeric-owner", "--mtime=@0"])
        .args(owners)
        .arg("--file")
        .arg(&plain)
        .arg("--directory")
        .arg(from)
        .arg(".");
    process::run(&mut tar)?;
    fs::write(to.join(format!("{name}.diff")), digest(&plain)?)?;
    process::run(process::command("gzip").args(["-1", "--no-name"]).arg(&plain))
}

fn agnhost(sources: &Sources<'_>, folder: &Path) -> Result<()> {
    fs::create_dir(folder.join("uploads"))?;
    install(&sources.tools.join("agnhost"), &folder.join("agnhost"), 0o755)?;
    symlink("agnhost", folder.join("agnhost-2"))?;
    for file in ["localhost.crt", "localhost.key"] {
        let from = sources.images.join("agnhost/porter").join(file);
        install(&from, &folder.join(file), 0o644)?;
    }
    Ok(())
}

fn page(sources: &Sources<'_>, folder: &Path, name: &str) -> Result<()> {
    for file in fs::read_dir(sources.images.join(name).join("html"))? {
        let file = file?;
        install(&file.path(), &folder.join(file.file_name()), 0o644)?;
    }
    Ok(())
}

/// Libraries of busybox, and those that the C library loads to resolve names.
const LIBRARIES: [&str; 6] = [
    "libc.so.6",
    "libm.so.6",
    "libresolv.so.2",
    "libpthread.so.0",
    "libnss_dns.so.2",
    "libnss_files.so.2",
];

fn busybox(sources: &Sources<'_>, folder: &Path) -> Result<()> {
    let empty = [
        "dev", "etc", "home", "proc", "root", "sbin", "sys", "tmp", "usr/bin", "usr/sbin", "var",
    ];
    for path in empty {
        fs::create_dir_all(folder.join(path))?;
    }
    fs::set_permissions(folder.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::create_dir(folder.join("bin"))?;
    install_busybox(&sources.busybox, &folder.join("bin"), &[])?;
    let (loader, libraries) = match std::env::consts::ARCH {
        "x86_64" => ("lib64/ld-linux-x86-64.so.2", "lib/x86_64-linux-gnu"),
        "aarch64" => ("lib/ld-linux-aarch64.so.1", "lib/aarch64-linux-gnu"),
        other => bail!("no image for {other}"),
    };
    let libraries = Path::new(libraries);
    for name in LIBRARIES {
        let file = libraries.join(name);
        install(&sources.root.join(&file), &folder.join(&file), 0o755)?;
    }
    // Where programs look for it is a link, and one to an absolute path would be the machine's.
    let name = Path::new(loader).file_name().unwrap_or_default();
    install(
        &sources.root.join(libraries).join(name),
        &folder.join(loader),
        0o755,
    )?;
    let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n";
    fs::write(folder.join("etc/passwd"), passwd)?;
    Ok(fs::write(
        folder.join("etc/group"),
        "root:x:0:\nnobody:x:65534:\n",
    )?)
}
