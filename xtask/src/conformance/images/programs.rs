//! Programs in the images that are neither Debian's nor a Go module's.

use crate::config::Config;
use crate::process;
use anyhow::{Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Debian's source of busybox, unpatched: its package drops names of environment variables that are not a shell's.
const BUSYBOX: &str = "http://deb.debian.org/debian/pool/main/b/busybox/busybox_1.35.0.orig.tar.bz2";
const BUSYBOX_DIGEST: &str = "faeeb244c35a348a334f4a59e44626ee870fb07b6884d68c10ae8bc19f83a694";
const BUSYBOX_FOLDER: &str = "busybox-1.35.0";

/// Builds busybox, once; returns the program.
pub(super) fn busybox(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("busybox");
    super::once(folder, "busybox", BUSYBOX_DIGEST, || {
        let archive = folder.join("busybox.tar.bz2");
        process::run(
            process::command("curl")
                .args(["-fsS", "--output"])
                .arg(&archive)
                .arg(BUSYBOX),
        )?;
        if super::digest(&archive)? != BUSYBOX_DIGEST {
            bail!("{BUSYBOX} is another file than it was");
        }
        process::run(
            process::command("tar")
                .arg("-xjf")
                .arg(&archive)
                .arg("-C")
                .arg(folder),
        )?;
        let source = folder.join(BUSYBOX_FOLDER);
        compile(&source)?;
        fs::copy(source.join("busybox"), &program)?;
        fs::remove_file(archive)?;
        Ok(fs::remove_dir_all(source)?)
    })?;
    Ok(program)
}

fn compile(source: &Path) -> Result<()> {
    let log = fs::File::create(source.with_extension("log"))?;
    let make = |words: &[&str]| -> Result<()> {
        let mut make = process::command("make");
        make.arg("-s").args(words).current_dir(source);
        make.stdin(std::process::Stdio::null());
        process::run(make.stdout(log.try_clone()?).stderr(log.try_clone()?))
    };
    make(&["defconfig"])?;
    let file = source.join(".config");
    // `tc` does not build with the kernel's headers of today; nothing may ask a question.
    let config = fs::read_to_string(&file)?.replace("CONFIG_TC=y\n", "# CONFIG_TC is not set\n");
    fs::write(file, without_questions(&config))?;
    let jobs = std::thread::available_parallelism()?.to_string();
    make(&["-j", &jobs, "CONFIG_EXTRA_LDLIBS=pthread", "busybox"])
}

/// `tc` has an option of its own that goes with it.
fn without_questions(config: &str) -> String {
    let lines = config.lines().filter(|line| !line.contains("CONFIG_FEATURE_TC_"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Puts busybox into a folder with a link for each of its programs that is neither there nor in `others`.
pub(super) fn install_busybox(program: &Path, folder: &Path, others: &[&Path]) -> Result<()> {
    install(program, &folder.join("busybox"), 0o755)?;
    for name in process::output(process::command(program).arg("--list"))?.lines() {
        let is_there = |folder: &Path| folder.join(name).symlink_metadata().is_ok();
        if !is_there(folder) && !others.iter().any(|other| is_there(other)) {
            symlink("busybox", folder.join(name))?;
        }
    }
    Ok(())
}

/// The program that holds a pod's sandbox: that of Knarr's own images.
pub(super) fn pause(config: &Config, folder: &Path) -> Result<PathBuf> {
    let program = folder.join("pause");
    let source = config.root.join("cmd/knarr/base/main.rs");
    super::once(folder, "pause", &fs::read_to_string(&source)?, || {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut rustc = process::command("rustc");
        rustc.current_dir(&config.root);
        rustc.args(["--edition", "2024", "-C", "opt-level=s", "-C", "panic=abort"]);
        // Naming the target keeps the flags off the compiler's own host side.
        rustc.args([
            "-C",
            "strip=symbols",
            "-C",
            "target-feature=+crt-static",
            "--target",
            &target,
        ]);
        process::run(rustc.arg("-o").arg(&program).arg(&source))
    })?;
    Ok(program)
}

/// Copies a file, with the mode.
pub(super) fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}
