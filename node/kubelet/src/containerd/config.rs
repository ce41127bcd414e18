//! The configuration file of our containerd. Pure.

use std::path::{Path, PathBuf};

use node_sys::cgroup::CgroupDriver;

/// Paths of containerd's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerdConfig {
    /// Its root, state, socket, logs and configuration lie below.
    pub directory: PathBuf,
    /// The reference of the pause image.
    pub sandbox_image: String,
    /// Folders in which CNI plugins are looked for.
    pub cni_bin_dir: PathBuf,
    /// Directory of the network's configuration list.
    pub cni_conf_dir: PathBuf,
    /// The OCI runtime.
    pub runtime: PathBuf,
    /// The program that makes cgroups.
    pub cgroup_driver: CgroupDriver,
}

impl ContainerdConfig {
    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        Self::socket_in(&self.directory)
    }

    /// The socket, below such a directory.
    pub fn socket_in(directory: &Path) -> PathBuf {
        directory.join("containerd.sock")
    }

    /// The file, below such a directory.
    pub fn path_in(directory: &Path) -> PathBuf {
        directory.join("config.toml")
    }

    /// Driver that the content of such a file names.
    pub fn driver_in(toml: &str) -> Option<CgroupDriver> {
        let mut lines = toml.lines().map(str::trim);
        let value = lines.find_map(|line| line.strip_prefix("SystemdCgroup = "))?;
        Some(match value {
            "true" => CgroupDriver::Systemd,
            _ => CgroupDriver::Cgroupfs,
        })
    }

    /// Content of the file of a containerd with the same records that serves no CRI, on another socket.
    pub fn repair_toml(&self, socket: &Path) -> String {
        let own = format!("address = {:?}", self.socket().display().to_string());
        let other = format!("address = {:?}", socket.display().to_string());
        let without = "disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n";
        format!("{without}{}", self.toml().replacen(&own, &other, 1))
    }

    /// Its content, for containerd 1.6 and 1.7; the first passes over the interface of devices.
    pub fn toml(&self) -> String {
        let quoted = |path: &std::path::Path| format!("{:?}", path.display().to_string());
        let below = |name: &str| quoted(&self.directory.join(name));
        let plugin = "io.containerd.grpc.v1.cri";
        format!(
            r#"version = 2
root = {root}
state = {state}
[grpc]
  address = {socket}
[plugins."{plugin}"]
  sandbox_image = {sandbox_image:?}
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  [plugins."{plugin}".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."{plugin}".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."{plugin}".containerd.runtimes.runc.options]
        SystemdCgroup = {systemd_cgroup}
        BinaryName = {runtime}
        Root = {runtime_state}
  [plugins."{plugin}".cni]
    bin_dir = {cni_bin}
    conf_dir = {cni_conf}
  [plugins."{plugin}".registry]
    config_path = {certs}
"#,
            root = below("root"),
            state = below("state"),
            socket = quoted(&self.socket()),
            sandbox_image = self.sandbox_image,
            systemd_cgroup = self.cgroup_driver == CgroupDriver::Systemd,
            runtime = quoted(&self.runtime),
            runtime_state = below("runc"),
            cni_bin = quoted(&self.cni_bin_dir),
            cni_conf = quoted(&self.cni_conf_dir),
            certs = below("certs.d"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_makes_groups_by_the_nodes_driver() {
        for driver in [CgroupDriver::Cgroupfs, CgroupDriver::Systemd] {
            let config = ContainerdConfig {
                directory: "/d".into(),
                sandbox_image: "pause".to_owned(),
                cni_bin_dir: "/bin".into(),
                cni_conf_dir: "/conf".into(),
                runtime: "/runc".into(),
                cgroup_driver: driver,
            };
            assert_eq!(ContainerdConfig::driver_in(&config.toml()), Some(driver));
        }
        assert_eq!(ContainerdConfig::driver_in("version = 2\n"), None);
    }
}
