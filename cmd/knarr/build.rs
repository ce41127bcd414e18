//! Builds `base/main.rs`, the program of the images knarr makes itself, as one static executable that
//! `image.rs` embeds. It needs the standard library and nothing else.

use std::path::PathBuf;
use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "a build script runs the compiler")]
fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("base/main.rs");
    let out = PathBuf::from(variable("OUT_DIR")).join("base");
    println!("cargo::rerun-if-changed=base/main.rs");
    println!("cargo::rustc-env=KNARR_BASE_PROGRAM={}", out.display());
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
        .arg("-o")
        .arg(&out)
        .arg(source)
        .status();
    if status.is_ok_and(|status| status.success()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
