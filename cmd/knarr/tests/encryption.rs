//! `--encryption-provider-config`: what lies on the disk is not plain, keys are rotated while the server runs, and
//! upstream's server and ours read each other's values in one etcd.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::etcd::Etcd;
use support::upstream::Upstream;
use support::{Launch, Server, tool_or_skip};

const QUIET: [&str; 2] = ["--controllers=-*", "--disable-scheduler"];
const PLAIN: &str = "plain-text-of-a-secret";
const GET: [&str; 4] = ["get", "secret", "hidden", "-o=jsonpath={.data.a}"];

/// A key of 16 and one of 32 bytes, by a letter.
fn provider(kind: &str, name: &str, letter: char) -> String {
    let secret = if kind == "secretbox" {
        format!("{}=", letter.to_string().repeat(43))
    } else {
        format!("{}==", letter.to_string().repeat(22))
    };
    format!("{kind}: {{keys: [{{name: {name}, secret: {secret}}}]}}")
}

fn config(rules: &[(&str, &[&str])]) -> String {
    let mut text =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n".to_owned();
    for (resources, providers) in rules {
        text += &format!("- resources: [{resources}]\n  providers:\n");
        for provider in *providers {
            text += &format!("  - {provider}\n");
        }
    }
    text
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn is_on_disk(folder: &Path, text: &str) -> bool {
    let files = std::fs::read_dir(folder)
        .expect("a folder")
        .filter_map(Result::ok);
    let mut contents = files.filter_map(|file| std::fs::read(file.path()).ok());
    contents.any(|bytes| bytes.windows(text.len()).any(|run| run == text.as_bytes()))
}

#[test]
fn encryption_hides_secrets_on_the_disk_and_rotates_keys_while_the_server_runs() {
    let test = "encryption_hides_secrets_on_the_disk_and_rotates_keys_while_the_server_runs";
    let Some(kubectl) = tool_or_skip(test, "kubectl") else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("encryption.yaml");
    let write = |rules: &[(&str, &[&str])]| std::fs::write(&file, config(rules)).expect("written");
    let (old, new) = (provider("aesgcm", "old", 'A'), provider("secretbox", "new", 'B'));
    write(&[("secrets", &[&old, "identity: {}"])]);
    let path = file.display().to_string();
    let flag = ["--encryption-provider-config", &path];
    let reload = "--encryption-provider-config-automatic-reload";
    let launch = Launch::with(&[&flag[..], &[reload], &QUIET].concat());
    let mut server = Server::start_in(dir, kubectl, launch);
    let storage = server.dir.path().join("data/storage");
    server.kubectl(&[
        "create",
        "secret",
        "generic",
        "hidden",
        &format!("--from-literal=a={PLAIN}"),
    ]);
    server.kubectl(&[
        "create",
        "configmap",
        "seen",
        &format!("--from-literal=a=map-{PLAIN}"),
    ]);
    let encoded = server.kubectl(&GET);
    assert!(is_on_disk(&storage, "k8s:enc:aesgcm:v1:old:") && !is_on_disk(&storage, &encoded));
    assert!(
        is_on_disk(&storage, &format!("map-{PLAIN}")),
        "other resources stay plain"
    );
    let version = || {
        server.kubectl(&[
            "get",
            "secret",
            "hidden",
            "-o=jsonpath={.metadata.resourceVersion}",
        ])
    };
    let replace = || {
        let all = server.kubectl(&["get", "secrets", "-A", "-o", "json"]);
        server.feed(&["replace", "-f", "-"], &all);
    };
    let before = version();
    replace();
    assert_eq!(version(), before, "nothing is stale");
    write(&[("secrets", &[&new, &old, "identity: {}"])]);
    let metrics = || server.kubectl(&["get", "--raw", "/metrics"]);
    let counted = |parts: &[&str]| {
        let metrics = metrics();
        metrics
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    let reloads = "apiserver_encryption_config_controller_automatic_reloads_total{";
    server.until("the configuration to be loaded", || {
        counted(&[reloads, "status=\"success\"", "} 1"])
    });
    replace();
    assert_ne!(version(), before, "written anew with the new key");
    assert!(is_on_disk(&storage, "k8s:enc:secretbox:v1:new:"));
    assert!(counted(&[
        "apiserver_storage_transformation_operations_total{",
        "resource=\"secrets\"",
        "transformation_type=\"to_storage\"",
        "transformer_prefix=\"k8s:enc:secretbox:v1:\"",
    ]));
    std::fs::write(&file, "no configuration").expect("written");
    server.until("the failure to be counted", || {
        counted(&[reloads, "status=\"failure\""])
    });
    assert_eq!(server.kubectl(&GET), encoded, "the last good configuration stays");
    write(&[("secrets", &["identity: {}"])]);
    server.kill_and_restart();
    let refused = server.refused(&GET);
    assert!(
        refused.contains("(InternalError)") && refused.contains("Internal error occurred: "),
        "{refused}"
    );
    assert!(!refused.contains(&encoded) && !refused.contains(PLAIN));
    server.refused(&["get", "secrets"]);
    write(&[("secrets", &[&new, "identity: {}"])]);
    server.until("the key to be loaded", || {
        server.try_kubectl(&GET).status.success()
    });
    let log = server.log();
    assert!(
        !log.contains("AAAAAAAA") && !log.contains("BBBBBBBB") && !log.contains(PLAIN),
        "{log}"
    );
    server.stop();
    export_opens_with_the_key_only(&server, &path, &encoded);
}

fn export_opens_with_the_key_only(server: &Server, config: &str, encoded: &str) {
    let data = server.dir.path().join("data").display().to_string();
    let backup = server.dir.path().join("one").display().to_string();
    let knarr = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
        command.arg("storage").args(arguments).stdin(Stdio::null());
        command.output().expect("the built binary starts")
    };
    assert!(knarr(&["backup", &backup, "--data-dir", &data]).status.success());
    let bytes = std::fs::read(&backup).expect("read");
    assert!(!bytes.windows(encoded.len()).any(|run| run == encoded.as_bytes()));
    for from in [["--data-dir", &data], ["--from", &backup]] {
        let export = ["export", from[0], from[1], "--prefix", "/registry/secrets/"];
        let refused = knarr(&export);
        assert!(
            said(&refused).contains("is encrypted: --encryption-provider-config"),
            "{refused:?}"
        );
        assert!(refused.stdout.is_empty());
        let opened = knarr(&[&export[..], &["--encryption-provider-config", config]].concat());
        let text = String::from_utf8_lossy(&opened.stdout);
        assert!(text.contains(&format!("a: {encoded}")), "{opened:?}");
        export_opens_nothing_outside_of_its_prefix(server, &from, &knarr);
    }
}

fn export_opens_nothing_outside_of_its_prefix(
    server: &Server,
    from: &[&str],
    knarr: &dyn Fn(&[&str]) -> Output,
) {
    let other = server.dir.path().join("other.yaml");
    let key = provider("secretbox", "other", 'C');
    std::fs::write(&other, config(&[("secrets", &[&key, "identity: {}"])])).expect("written");
    let with = ["--encryption-provider-config", &other.display().to_string()];
    let export = |prefix: &str| knarr(&[&["export"], from, &["--prefix", prefix], &with].concat());
    let maps = export("/registry/configmaps/");
    assert!(maps.status.success(), "{maps:?}");
    assert!(String::from_utf8_lossy(&maps.stdout).contains("name: seen"));
    let none = export("/registry/nothing/");
    assert!(
        none.status.success() && said(&none).contains("0 objects"),
        "{none:?}"
    );
}

/// The same on the server's own storage and on etcd.
#[test]
fn encryption_key_in_use_is_not_dropped_by_a_reload_and_missed_at_a_start() {
    let test = "encryption_key_in_use_is_not_dropped_by_a_reload_and_missed_at_a_start";
    // What servers on one etcd share is encrypted as Secrets are, and without its key none starts: there another kind.
    let budget = ["poddisruptionbudget", "--selector=a=b", "--min-available=1"];
    for (on_etcd, rule, key, made) in [
        (
            false,
            "secrets",
            "secrets/default/hidden",
            &["secret", "generic"][..],
        ),
        (
            true,
            "poddisruptionbudgets.policy",
            "poddisruptionbudgets/default/hidden",
            &budget[..],
        ),
    ] {
        let Some((kubectl, etcd)) = tool_or_skip(test, "kubectl").zip(Etcd::start_or_skip(test)) else {
            return;
        };
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("encryption.yaml");
        let write = |rules: &[(&str, &[&str])]| std::fs::write(&file, config(rules)).expect("written");
        let (old, new) = (provider("aesgcm", "old", 'A'), provider("secretbox", "new", 'B'));
        write(&[(rule, &[&old, "identity: {}"])]);
        let path = file.display().to_string();
        let flags = [
            "--encryption-provider-config",
            &path,
            "--encryption-provider-config-automatic-reload",
        ];
        let place: &[&str] = if on_etcd {
            &["--etcd-servers", &etcd.endpoint]
        } else {
            &[]
        };
        let launch = Launch::with(&[&flags[..], place, &QUIET].concat());
        let mut server = Server::start_in(dir, kubectl, launch);
        let create = |server: &Server, name: &str| {
            server.kubectl(&[&["create"], made, &[name]].concat());
        };
        let get = ["get", made[0], "hidden", "-o=name"];
        create(&server, "hidden");
        write(&[(rule, &[&new, "identity: {}"])]);
        let counted = |server: &Server, parts: &[&str]| {
            let metrics = server.kubectl(&["get", "--raw", "/metrics"]);
            let mut lines = metrics.lines();
            lines.any(|line| parts.iter().all(|part| line.contains(part)))
        };
        server.until("the reload to be refused", || {
            counted(&server, &["automatic_reloads_total{", "status=\"failure\""])
        });
        let log = whole_log(&server);
        let refused = format!("1 stored value could no longer be decrypted, /registry/{key} first");
        assert!(log.contains(&refused), "{log}");
        server.kubectl(&get);
        create(&server, "later");
        server.kubectl(&["get", "--raw", "/readyz/storage-encryption"]);
        server.kill_and_restart();
        server.refused(&get);
        server.until("what is missed to be counted", || {
            counted(&server, &["knarr_storage_unopened_values 2"])
        });
        server.refused(&["get", "--raw", "/readyz/storage-encryption"]);
        let log = whole_log(&server);
        assert!(
            log.contains(&format!(
                "2 stored values cannot be decrypted, /registry/{key} first"
            )),
            "{log}"
        );
        if !on_etcd {
            check_names_what_it_cannot_open(&mut server, &path);
        }
        write(&[(rule, &[&new, &old, "identity: {}"])]);
        server.until("the key to be loaded", || {
            server.try_kubectl(&get).status.success()
        });
        server.until("nothing to be missed", || {
            counted(&server, &["knarr_storage_unopened_values 0"])
        });
        server.kubectl(&["get", "--raw", "/readyz/storage-encryption"]);
    }
}

fn whole_log(server: &Server) -> String {
    std::fs::read_to_string(server.dir.path().join("log")).expect("a log")
}

fn check_names_what_it_cannot_open(server: &mut Server, config: &str) {
    server.stop();
    let data = server.dir.path().join("data").display().to_string();
    let check = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
        command.args(["storage", "check", "--data-dir", &data]).args(more);
        command
            .stdin(Stdio::null())
            .output()
            .expect("the built binary starts")
    };
    let plain = check(&[]);
    assert_eq!(plain.status.code(), Some(0), "{plain:?}");
    let told = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(told.contains("2 objects are encrypted"), "{told}");
    let opened = check(&["--encryption-provider-config", config]);
    assert_eq!(opened.status.code(), Some(4), "{opened:?}");
    let told = String::from_utf8_lossy(&opened.stdout).into_owned();
    assert!(
        told.contains("/registry/secrets/default/hidden") && told.contains("/registry/secrets/default/later"),
        "{told}"
    );
    server.start_again();
}

#[test]
fn encryption_of_upstreams_server_and_ours_is_one_in_one_etcd() {
    let test = "encryption_of_upstreams_server_and_ours_is_one_in_one_etcd";
    let Some((kubectl, etcd)) = tool_or_skip(test, "kubectl").zip(Etcd::start_or_skip(test)) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let write = |name: &str, letter: char| {
        let (cbc, secretbox) = (provider("aescbc", "key", 'A'), provider("secretbox", "key", 'A'));
        let budgets = provider("aesgcm", "key", letter);
        let rules = [
            ("secrets", &[&cbc[..], "identity: {}"][..]),
            ("serviceaccounts, configmaps", &[&secretbox, "identity: {}"]),
            ("poddisruptionbudgets.policy", &[&budgets]),
        ];
        let path = dir.path().join(name);
        std::fs::write(&path, config(&rules)).expect("written");
        path.display().to_string()
    };
    let right = write("right.yaml", 'A');
    let flags = ["--encryption-provider-config", &right];
    let Some(upstream) = Upstream::start_or_skip(test, &etcd, &flags) else {
        return;
    };
    let on_etcd = ["--etcd-servers", &etcd.endpoint];
    let ours = Server::start(kubectl.clone(), &[&on_etcd[..], &flags, &QUIET].concat());
    let literal = "--from-literal=a=1";
    for create in [
        &["create", "secret", "generic", "NAME", literal][..],
        &["create", "configmap", "NAME", literal],
        &["create", "serviceaccount", "NAME"],
        &[
            "create",
            "poddisruptionbudget",
            "NAME",
            "--selector=a=b",
            "--min-available=1",
        ],
    ] {
        let named = |name: &'static str| -> Vec<&str> {
            create
                .iter()
                .map(|word| if *word == "NAME" { name } else { *word })
                .collect()
        };
        ours.kubectl(&named("of-ours"));
        upstream.kubectl(&named("of-upstream"));
        let kind = create[1];
        upstream.kubectl(&["get", kind, "of-ours"]);
        ours.kubectl(&["get", kind, "of-upstream"]);
        let list = ours.kubectl(&["get", kind, "-o", "name"]);
        assert!(list.contains("of-ours") && list.contains("of-upstream"), "{list}");
    }
    drop((ours, upstream));
    let wrong = write("wrong.yaml", 'B');
    let flags = ["--encryption-provider-config", &wrong];
    let Some(upstream) = Upstream::start_or_skip(test, &etcd, &flags) else {
        return;
    };
    let ours = Server::start(kubectl, &[&on_etcd[..], &flags, &QUIET].concat());
    let get = ["get", "poddisruptionbudget", "of-ours"];
    let expected = said(&upstream.run(&get));
    assert!(
        expected.contains("cipher: message authentication failed"),
        "{expected}"
    );
    assert_eq!(said(&ours.try_kubectl(&get)), expected);
    let list = said(&ours.try_kubectl(&["get", "poddisruptionbudgets"]));
    assert!(
        list.contains("failed to read one or more poddisruptionbudgets.policy from the storage"),
        "{list}"
    );
    drop((ours, upstream));
    let (dir, _) = etcd.stop();
    let member = dir.path().join("data/member");
    for folder in ["wal", "snap"] {
        let folder = member.join(folder);
        assert!(
            is_on_disk(&folder, "/knarr/registry/authorities"),
            "what is looked for is there"
        );
        assert!(
            !is_on_disk(&folder, "PRIVATE KEY"),
            "the authorities that servers share are plain"
        );
    }
}
