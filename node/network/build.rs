//! Builds `plugin/main.rs`, the CNI plugin's program, as one static executable that `src/cni/install.rs` embeds: it starts in a
//! fraction of the time that the agent's own binary takes. It needs the standard library and nothing else.

use std::path::PathBuf;
use std::process::ExitCode;

#[expect(clippy::disallowed_methods, reason = "a build script runs the compiler")]
fn main() -> ExitCode {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let source = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("plugin/main.rs");
    let out = PathBuf::from(variable("OUT_DIR")).join("knarr-cni");
    for input in ["plugin/main.rs", "src/cni/frame.rs"] {
        println!("cargo::rerun-if-changed={input}");
    }
    println!("cargo::rustc-env=KNARR_CNI_PROGRAM={}", out.display());
    let status = std::process::Command::new(variable("RUSTC"))
        .args(["--edition", "2024", "--crate-name", "knarr_cni"])
        .args(["--target", &variable("TARGET")])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols"])
        .args([
            "-C",
            "target-feature=+crt-static",
            "-C",
            "relocation-model=static",
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
