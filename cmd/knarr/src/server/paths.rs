//! Paths below `--data-dir`, and of the agent's files, which may lie elsewhere.

use anyhow::{Context, ensure};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    data: PathBuf,
    agent: PathBuf,
}

impl Paths {
    /// Everything below one directory.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self {
            data: data_dir.to_owned(),
            agent: data_dir.join("agent"),
        }
    }

    /// Puts the agent's files, which are containerd's and the pods' too, into `elsewhere`, made if missing. `agent` below
    /// the data directory is then a link to it, by which later starts without the flag, `knarr image` and
    /// `knarr uninstall` find them.
    ///
    /// # Errors
    /// An agent has files already, other than there: they are not moved.
    pub(crate) fn with_agent_at(mut self, elsewhere: Option<&Path>) -> anyhow::Result<Self> {
        let link = self.data.join("agent");
        let linked = fs::symlink_metadata(&link).is_ok_and(|found| found.is_symlink());
        if let Some(wanted) = elsewhere {
            let flag = || format!("--agent-data-dir {}", wanted.display());
            node_sys::fs::make_private_folder(wanted).with_context(flag)?;
            self.agent = wanted.canonicalize().with_context(flag)?;
            if !linked {
                make_link(&link, &self.agent)?;
            }
        }
        if linked || elsewhere.is_some() {
            let target = link
                .canonicalize()
                .with_context(|| format!("{} points nowhere", link.display()))?;
            ensure!(
                elsewhere.is_none() || target == self.agent,
                "{} points to {}, where this node's files are; give --agent-data-dir that, or move them and remove the link",
                link.display(),
                target.display()
            );
            self.agent = target;
        }
        Ok(self)
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    pub(crate) fn storage(&self) -> PathBuf {
        self.data.join("storage")
    }

    /// The record of the server's process.
    pub(crate) fn process(&self) -> PathBuf {
        self.data.join("server.pid")
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin(&self) -> PathBuf {
        self.data.join("admin.kubeconfig")
    }

    /// The node agent's own data directory; its identity lies in it.
    pub(crate) fn agent(&self) -> PathBuf {
        self.agent.clone()
    }

    pub(crate) fn in_agent(&self, name: &str) -> PathBuf {
        self.agent.join(name)
    }
}

/// Makes a link in the place of a folder that is absent or empty.
fn make_link(link: &Path, target: &Path) -> anyhow::Result<()> {
    match fs::remove_dir(link) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| {
            format!(
                "{} holds an agent's files already; move them to {} and start again",
                link.display(),
                target.display()
            )
        }),
        _ => std::os::unix::fs::symlink(target, link)
            .with_context(|| format!("making the link {}", link.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_files_lie_elsewhere_and_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let (data, disk) = (folder.path().join("data"), folder.path().join("disk/knarr"));
        fs::create_dir_all(&data).unwrap();
        let at = |elsewhere: Option<&Path>| Paths::new(&data).with_agent_at(elsewhere);
        assert_eq!(at(None).unwrap().agent(), data.join("agent"));
        let real = |paths: Paths| paths.in_agent("file");
        let placed = real(at(Some(&disk)).unwrap());
        assert_eq!(placed, disk.canonicalize().unwrap().join("file"));
        fs::write(&placed, "kept").unwrap();
        assert_eq!(fs::read(data.join("agent/file")).unwrap(), b"kept");
        assert_eq!(real(at(Some(&disk)).unwrap()), placed, "the second start");
        assert_eq!(real(at(None).unwrap()), placed, "without the flag");
        let other = at(Some(&folder.path().join("other"))).unwrap_err();
        assert!(other.to_string().contains("points to"), "{other}");
    }

    #[test]
    fn agent_files_that_are_there_are_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("agent/pods")).unwrap();
        let elsewhere = folder.path().join("disk");
        let refused = Paths::new(folder.path())
            .with_agent_at(Some(&elsewhere))
            .unwrap_err();
        assert!(
            refused.to_string().contains("holds an agent's files"),
            "{refused}"
        );
    }
}
