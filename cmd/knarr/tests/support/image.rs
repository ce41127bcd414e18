//! The image of the tests' workloads, made on the spot: a shell with its tools, and a gRPC server to probe.

use node_cri::archive::{ImageSource, TarWriter, write_image};
use std::path::Path;
use std::process::Command;

/// Image of the tests' pods.
pub(crate) const TOOLS: &str = "knarr.test/tools:latest";
/// The static shell of Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

/// Reports whether the shell is there.
pub(crate) fn can_be_made() -> bool {
    Path::new(BUSYBOX).is_file()
}

/// Writes the image's archive.
pub(crate) fn write(archive: &Path, scratch: &Path) {
    let names = Command::new(BUSYBOX)
        .arg("--list")
        .output()
        .expect("busybox runs");
    let names = String::from_utf8(names.stdout).expect("names of programs");
    let busybox = std::fs::read(BUSYBOX).expect("busybox is readable");
    let mut tar = TarWriter::new(Vec::new());
    let mut fill = || {
        for (folder, mode) in [
            ("bin", 0o755),
            ("etc", 0o755),
            ("root", 0o700),
            ("tmp", 0o1777),
            ("www", 0o777),
        ] {
            tar.folder(folder, mode)?;
        }
        tar.file(
            "etc/passwd",
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n",
        )?;
        tar.file("etc/group", 0o644, b"root:x:0:\nuser:x:1000:\n")?;
        tar.file("www/index.html", 0o644, b"well\n")?;
        tar.file("bin/busybox", 0o755, &busybox)?;
        for (name, source) in PROGRAMS {
            tar.file(&format!("bin/{name}"), 0o755, &compiled(source, scratch))?;
        }
        let mut others = names.lines().filter(|name| *name != "busybox");
        others.try_for_each(|name| tar.link(&format!("bin/{name}"), "/bin/busybox"))
    };
    let filled: std::io::Result<()> = fill();
    filled.expect("the layer is written");
    let source = ImageSource {
        names: vec![TOOLS.to_owned()],
        architecture: architecture().to_owned(),
        layer: tar.finish().expect("the layer ends"),
        entrypoint: Vec::new(),
        arguments: vec!["sh".to_owned()],
        env: vec!["PATH=/bin".to_owned()],
    };
    let image = write_image(Vec::new(), &source).expect("the image is written");
    std::fs::write(archive, image).expect("the archive is written");
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Our own programs in it: what a probe asks, and a client that looks names up as a pod's `resolv.conf` says (the
/// shell's own tools cannot, being static).
const PROGRAMS: [(&str, &str); 2] = [
    ("grpc-health", "tests/programs/grpc_health.rs"),
    ("base", "base/main.rs"),
];

/// A program of one file and the standard library, static.
fn compiled(source: &str, scratch: &Path) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = scratch.join("program");
    let status = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()))
        .args([
            "--edition",
            "2024",
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .args(["-C", "target-feature=+crt-static"])
        // Naming the target keeps the flag off the compiler's own host side.
        .args([
            "--target",
            &format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        ])
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "rustc builds {}",
        source.display()
    );
    std::fs::read(program).expect("the program is there")
}
