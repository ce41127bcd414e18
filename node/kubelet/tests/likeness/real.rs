//! A containerd of the test's own, in a folder of its own.

use crate::transcript::{Daemon, IMAGE};
use machinery_runtime::Runtime;
use node_cri::archive::{ImageSource, TarWriter, write_image};
use node_cri::import::{ImportLease, import};
use node_cri::{CriClient, v1};
use node_kubelet::containerd::config::ContainerdConfig;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

/// The static shell of Debian's package `busybox-static`.
const BUSYBOX: &str = "/bin/busybox";

pub(crate) struct RealContainerd {
    folder: PathBuf,
    child: Mutex<Child>,
}

impl RealContainerd {
    /// One that answers and has the image; or none after printing what is missing.
    pub(crate) async fn start(folder: &Path, runtime: &Runtime) -> Option<Self> {
        let runc = node_sys::exec::find_program("runc");
        let lacks = !is_root() || runc.is_none() || !Path::new(BUSYBOX).is_file();
        if lacks || node_sys::exec::find_program("containerd").is_none() {
            eprintln!(
                "SKIPPED, not passed: likeness, since root, containerd, runc or busybox-static is missing"
            );
            return None;
        }
        let config = ContainerdConfig {
            directory: folder.join("containerd"),
            sandbox_image: IMAGE.to_owned(),
            cni_bin_dir: "/usr/lib/cni".into(),
            cni_conf_dir: folder.join("cni"),
            runtime: runc?,
            cgroup_driver: node_sys::cgroup::CgroupDriver::default(),
        };
        std::fs::create_dir_all(&config.directory).unwrap();
        std::fs::write(ContainerdConfig::path_in(&config.directory), config.toml()).unwrap();
        let containerd = Self {
            folder: folder.to_owned(),
            child: Mutex::new(spawn(folder)),
        };
        let cri = containerd.client();
        while cri.version(v1::VersionRequest::default()).await.is_err() {
            runtime.sleep(Duration::from_millis(20)).await;
        }
        let archive = folder.join("image.tar");
        std::fs::write(&archive, image()).unwrap();
        let lease = ImportLease {
            name: "likeness".to_owned(),
            expires_at: "2100-01-01T00:00:00Z".to_owned(),
        };
        import(&cri, &archive, lease).await.unwrap();
        Some(containerd)
    }

    pub(crate) fn client(&self) -> CriClient {
        CriClient::new(ContainerdConfig::socket_in(&self.folder.join("containerd")))
    }
}

impl Daemon for RealContainerd {
    fn restart(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        *child = spawn(&self.folder);
    }
}

impl Drop for RealContainerd {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
        // What a failed test has left: shims name the socket of their daemon, which no other process does.
        let socket = ContainerdConfig::socket_in(&self.folder.join("containerd"));
        let socket = socket.display().to_string();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(&socket) {
                let pid = entry.file_name();
                let _ = Command::new("kill").arg("-9").arg(pid).status();
            }
        }
        let mounter = node_sys::mount::LinuxMounter;
        use node_sys::mount::Mounter;
        for point in mounter.below(&self.folder).unwrap_or_default() {
            let _ = mounter.unmount(&point);
        }
    }
}

fn is_root() -> bool {
    node_sys::machine::is_root()
}

fn spawn(folder: &Path) -> Child {
    let directory = folder.join("containerd");
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"));
    Command::new("containerd")
        .arg("--config")
        .arg(ContainerdConfig::path_in(&directory))
        .args(["--log-level", "warn"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.unwrap())
        .spawn()
        .unwrap()
}

fn image() -> Vec<u8> {
    let mut tar = TarWriter::new(Vec::new());
    for (folder, mode) in [("bin", 0o755), ("tmp", 0o1777)] {
        tar.folder(folder, mode).unwrap();
    }
    tar.file("bin/busybox", 0o755, &std::fs::read(BUSYBOX).unwrap())
        .unwrap();
    for name in ["sh", "sleep", "test", "printf", "echo"] {
        tar.link(&format!("bin/{name}"), "/bin/busybox").unwrap();
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let source = ImageSource {
        names: vec![IMAGE.to_owned()],
        architecture: architecture.to_owned(),
        layer: tar.finish().unwrap(),
        // The sandboxes' own process.
        entrypoint: vec!["/bin/sleep".to_owned()],
        arguments: vec!["100000000".to_owned()],
        env: vec!["PATH=/bin".to_owned()],
    };
    write_image(Vec::new(), &source).unwrap()
}
