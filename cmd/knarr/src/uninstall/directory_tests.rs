use super::super::guard::homes;
use super::*;

/// A server's directory as it is on disk, with an agent's in it.
fn cluster(root: &Path) -> PathBuf {
    let data = root.join("data");
    for folder in ["pki", "storage", "agent/containerd/root", "agent/pods/uid"] {
        fs::create_dir_all(data.join(folder)).unwrap();
    }
    for file in [
        "pki/ca.crt",
        "pki/sa.pub",
        "storage/LOCK",
        "admin.kubeconfig",
        "agent/agent.pid",
        "agent/pods/uid/any",
    ] {
        fs::write(data.join(file), "").unwrap();
    }
    data
}

#[track_caller]
fn refused(dir: &Path, reason: &str) {
    let error = Directories::find(dir).unwrap_err();
    assert!(format!("{error:#}").contains(reason), "{error:#}");
}

#[test]
fn uninstall_refuses_what_is_not_a_clusters_directory() {
    for system in ["/", "/usr", "/var", "/var/lib", "/home", "/etc", "/tmp"] {
        refused(Path::new(system), "belongs to the system");
    }
    let folder = tempfile::tempdir().unwrap();
    refused(&folder.path().join("absent"), "there is nothing to remove");
    refused(folder.path(), "is not the data directory of a cluster");
    std::os::unix::fs::symlink("/usr", folder.path().join("link")).unwrap();
    refused(&folder.path().join("link"), "belongs to the system");
    fs::write(folder.path().join("pki"), "").unwrap();
    refused(&folder.path().join("pki"), "is not a directory");
}

#[test]
fn node_that_leaves_is_no_servers() {
    let folder = tempfile::tempdir().unwrap();
    let data = cluster(folder.path());
    for dir in [&data, &data.join("agent")] {
        let error = Directories::find_agent(dir).unwrap_err();
        assert!(format!("{error:#}").contains("belongs to a server"), "{error:#}");
    }
    let joined = folder.path().join("agent");
    fs::rename(data.join("agent"), &joined).unwrap();
    let found = Directories::find_agent(&joined).unwrap();
    assert_eq!(found.agent(), Some(joined.canonicalize().unwrap().as_path()));
}

#[test]
fn uninstall_refuses_home_directories_of_those_who_log_in() {
    let accounts = "root:x:0:0::/root:/bin/bash\nknarr:x:999:999::/var/lib/knarr:/usr/sbin/nologin\nann:x:1000:1000::/data/ann:/bin/zsh\n";
    assert_eq!(
        homes(accounts),
        [PathBuf::from("/root"), PathBuf::from("/data/ann")]
    );
}

#[test]
fn uninstall_refuses_a_directory_that_holds_anything_else() {
    for foreign in [
        "tokens.csv",
        "agent/photos",
        "pki/mine.crt",
        "storage/notes",
        "etc/x",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = cluster(folder.path());
        Directories::find(&data).unwrap();
        let path = data.join(foreign);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        refused(&data, "holds files that are not Knarr's");
    }
}

#[test]
fn uninstall_removes_its_directories_and_nothing_that_links_lead_to() {
    let folder = tempfile::tempdir().unwrap();
    let data = cluster(folder.path());
    let (elsewhere, others) = (folder.path().join("disk"), folder.path().join("others"));
    fs::rename(data.join("agent"), &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, data.join("agent")).unwrap();
    fs::create_dir(&others).unwrap();
    fs::write(others.join("kept"), "").unwrap();
    for link in ["pods/uid/link", "logs"] {
        std::os::unix::fs::symlink(&others, elsewhere.join(link)).unwrap();
    }
    // What a write that was interrupted leaves is the cluster's too.
    fs::write(data.join(".server.pid.tmp"), "").unwrap();
    fs::write(elsewhere.join("agent.pid.tmp"), "").unwrap();
    let found = Directories::find(&data).unwrap();
    assert_eq!(found.list().len(), 2);
    found.remove().unwrap();
    assert!(!data.try_exists().unwrap() && !elsewhere.try_exists().unwrap());
    assert!(others.join("kept").try_exists().unwrap());
    refused(&data, "there is nothing to remove");
}

#[test]
fn uninstall_recognises_an_agents_directory_alone() {
    let folder = tempfile::tempdir().unwrap();
    let agent = cluster(folder.path()).join("agent");
    let found = Directories::find(&agent).unwrap();
    assert_eq!(
        (found.server, found.agent.as_deref()),
        (None, Some(agent.as_path()))
    );
}

#[test]
fn uninstall_empties_the_directory_that_it_has_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let data = cluster(&home);
    let found = Directories::find(&data).unwrap();
    let others = folder.path().join("others");
    fs::create_dir_all(others.join("data/agent")).unwrap();
    fs::write(others.join("data/agent/photos"), "").unwrap();
    // The user of the home moves what is above the cluster, after the look.
    fs::rename(&home, folder.path().join("moved")).unwrap();
    std::os::unix::fs::symlink(&others, &home).unwrap();
    let error = found.remove().unwrap_err();
    assert!(
        format!("{error:#}").contains("holds files that are not Knarr's"),
        "{error:#}"
    );
    assert!(others.join("data/agent/photos").try_exists().unwrap());
}

#[test]
fn uninstall_refuses_an_agent_to_which_a_user_has_linked() {
    if !node_sys::machine::is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, roots) = (cluster(folder.path()), folder.path().join("roots"));
    fs::rename(data.join("agent"), &roots).unwrap();
    std::os::unix::fs::symlink(&roots, data.join("agent")).unwrap();
    Directories::find(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(1), None).unwrap();
    refused(&data, "belongs to another user");
    let error = Directories::locate(&data).unwrap_err();
    assert!(
        format!("{error:#}").contains("belongs to another user"),
        "{error:#}"
    );
}
