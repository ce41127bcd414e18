//! The file system of agnhost, nginx and the image of DNS specs: Debian's smallest system with the programs that specs run.

use super::folder::empty;
use super::programs;
use crate::process;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const RELEASE: &str = "bookworm";

/// Packages of the programs that specs run; `nc` is the one of OpenBSD, as upstream.
const PACKAGES: &str = "bash,bind9-dnsutils,curl,netcat-openbsd,iproute2,iperf,socat,iputils-ping,procps,ca-certificates,nginx-light";

/// Files and folders that no spec looks at.
const LEFT_OUT: [&str; 9] = [
    "var/cache/apt",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "dev",
    "var/log",
    // The node mounts these.
    "etc/resolv.conf",
    "etc/hostname",
];

/// The image volume's spec looks at the name of the system, which upstream's image is built on.
const OS_RELEASE: &str = "NAME=\"Alpine Linux\"\nID=alpine\nPRETTY_NAME=\"Alpine Linux (a stand-in)\"\n";

/// The user and the group of the specs about groups in images.
const PASSWD: &str = "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n";
const GROUP: &str = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";

const NGINX: &str = "events {}\nhttp {\n  access_log off;\n  include mime.types;\n  server { listen 80; root /usr/share/nginx/html; }\n}\n";

/// Makes the folder, empty before.
pub(super) fn make(folder: &Path, busybox: &Path) -> Result<()> {
    let mut debootstrap = process::command("debootstrap");
    debootstrap
        .args(["--variant=minbase", &format!("--include={PACKAGES}"), RELEASE])
        .arg(folder);
    let log = folder.with_extension("log");
    debootstrap.stdout(fs::File::create(&log)?);
    process::run(&mut debootstrap).with_context(|| format!("see {}", log.display()))?;
    for path in LEFT_OUT {
        let path = folder.join(path);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => empty(&path)?,
            Ok(_) => fs::remove_file(&path)?,
            // Some are there or not, as the machine is.
            Err(_) => {}
        }
    }
    fs::create_dir_all(folder.join("var/log/nginx"))?;
    programs::install_busybox(busybox, &folder.join("bin"), &[&folder.join("sbin")])?;
    for (name, target) in [("sh", "busybox"), ("nc", "nc.openbsd")] {
        let link = folder.join("bin").join(name);
        fs::remove_file(&link)?;
        symlink(target, link)?;
    }
    append(&folder.join("etc/passwd"), PASSWD)?;
    append(&folder.join("etc/group"), GROUP)?;
    // A link to a file that would be replaced otherwise.
    fs::remove_file(folder.join("etc/os-release"))?;
    fs::write(folder.join("etc/os-release"), OS_RELEASE)?;
    fs::write(folder.join("etc/nginx/nginx.conf"), NGINX)?;
    fs::create_dir_all(folder.join("usr/share/nginx/html"))?;
    Ok(fs::write(
        folder.join("usr/share/nginx/html/index.html"),
        "<h1>Welcome to nginx!</h1>\n",
    )?)
}

fn append(file: &Path, text: &str) -> Result<()> {
    let before = fs::read_to_string(file)?;
    Ok(fs::write(file, before + text)?)
}
