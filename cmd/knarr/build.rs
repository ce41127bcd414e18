//! Builds `base/main.rs`, the program of the images knarr makes itself, as one static executable that
//! `image.rs` embeds. It needs the standard library and nothing else.
//!
//! A release is linked so that functions of one content are one, where the linker that makes the base program knows how.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Word for the linker: Rust's own lld on Linux and mold know it, GNU's does not.
const FOLD: &str = "-Wl,--icf=all";

fn main() -> ExitCode {
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("base/main.rs");
    let out = PathBuf::from(variable("OUT_DIR")).join("base");
    println!("cargo::rerun-if-changed=base/main.rs");
    println!("cargo::rustc-env=KNARR_BASE_PROGRAM={}", out.display());
    let is_release = variable("PROFILE") == "release";
    if is_release && build(&source, &out, &["-C", &format!("link-arg={FOLD}")]) {
        println!("cargo::rustc-link-arg-bins={FOLD}");
        return ExitCode::SUCCESS;
    }
    match build(&source, &out, &[]) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by its environment"
)]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "a build script runs the compiler")]
fn build(source: &Path, out: &Path, more: &[&str]) -> bool {
    let status = std::process::Command::new(variable("RUSTC"))
        .args([
            "--edition",
            "2024",
            "--crate-name",
            "base",
            "--target",
            &variable("TARGET"),
        ])
        .args([
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "-C",
            "target-feature=+crt-static",
        ])
        .args(more)
        .arg("-o")
        .arg(out)
        .arg(source)
        .status();
    status.is_ok_and(|status| status.success())
}
