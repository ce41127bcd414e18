//! Commands with which a user looks at pods and talks to them.

use crate::support::cluster::{Cluster, service_address};
use crate::support::kubectl::{Kubectl, PATIENCE, text};
use crate::support::network::ask;
use crate::support::python::python_or_skip;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

pub(super) const IMAGE: &str = "--image=knarr.test/tools:latest";
pub(super) const PRESENT: &str = "--image-pull-policy=IfNotPresent";

pub(super) fn run(story: &Kubectl, script: &str) {
    story.kubectl(&["run", "main", IMAGE, PRESENT, "--", "sh", "-c", script]);
    story.wait("pod/main", "condition=Ready");
}

pub(crate) fn a_pod_is_run_described_and_read(cluster: &Cluster) {
    let story = cluster.namespace("described");
    run(&story, "echo one; echo two >&2; exec sleep 10000");
    let listed = story.kubectl(&["get", "pods", "-o", "wide"]);
    assert!(
        listed.contains("1/1") && listed.contains("Running") && listed.contains("10.244."),
        "{listed}"
    );
    story.until("both lines", || {
        let log = story.kubectl(&["logs", "main"]);
        log.contains("one\n") && log.contains("two\n")
    });
    assert_eq!(story.kubectl(&["logs", "main", "--tail=1"]).lines().count(), 1);
    let stamped = story.kubectl(&["logs", "main", "--timestamps"]);
    assert!(
        stamped
            .lines()
            .all(|line| line.split_once(' ').is_some_and(|(time, _)| time.len() >= 30)),
        "{stamped}"
    );
    story.until("its events", || {
        let described = story.kubectl(&["describe", "pod", "main"]);
        [
            "Successfully assigned described/main to",
            "Container created",
            "Container started",
        ]
        .iter()
        .all(|event| described.contains(event))
    });
    let events = story.kubectl(&[
        "get",
        "events",
        "--field-selector",
        "involvedObject.name=main,reason=Started",
    ]);
    assert!(events.contains("pod/main"), "{events}");
    let refused = story.refused(&["logs", "main", "-c", "other"]);
    assert!(
        refused.contains("container other is not valid for pod main"),
        "{refused}"
    );
    let refused = story.refused(&["exec", "main", "--", "sh", "-c", "exit 7"]);
    assert!(
        refused.contains("command terminated with exit code 7"),
        "{refused}"
    );
    let refused = story.refused(&["logs", "-p", "main"]);
    assert!(
        refused.contains("previous terminated container \"main\" in pod \"main\" not found"),
        "{refused}"
    );
    let node = cluster.kubectl.kubectl(&["describe", "nodes"]);
    assert!(
        node.contains("described") && node.contains("KubeletReady"),
        "{node}"
    );
}

/// A kubectl that goes on, ended when dropped.
pub(super) struct Session {
    child: Child,
    lines: Receiver<String>,
}

impl Session {
    pub(super) fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("kubectl starts");
        let mut output = BufReader::new(child.stdout.take().expect("its output is ours"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while output.read_line(&mut line).is_ok_and(|count| count > 0)
                && sender.send(std::mem::take(&mut line)).is_ok()
            {}
        });
        Self { child, lines }
    }

    pub(super) fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("its input is ours");
        writeln!(input, "{line}").expect("it listens");
    }

    /// Its next line; nothing at its end.
    #[track_caller]
    pub(super) fn line(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line.trim_end().to_owned(),
            Err(RecvTimeoutError::Disconnected) => String::new(),
            Err(RecvTimeoutError::Timeout) => panic!("no further line within {PATIENCE:?}"),
        }
    }

    /// The rest of what it says, its input being closed.
    #[track_caller]
    pub(super) fn rest(mut self) -> String {
        drop(self.child.stdin.take());
        let mut lines = Vec::new();
        loop {
            match self.line() {
                line if line.is_empty() => return lines.join("\n"),
                line => lines.push(line),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn a_log_is_followed_and_the_previous_one_kept(cluster: &Cluster) {
    let story = cluster.namespace("followed");
    // Prints a line on one signal, and ends on another. The sender of the last one may still hold the
    // pipe open when it is opened for the next one, which then ends without a line.
    let script = "echo began; mkfifo /tmp/say; while :; do read line < /tmp/say || continue; \
                  test \"$line\" = end && exit 5; echo \"$line\"; done";
    run(&story, script);
    let say = |line: &str| {
        story.kubectl(&[
            "exec",
            "main",
            "--",
            "sh",
            "-c",
            &format!("until test -p /tmp/say; do sleep 0.1; done; echo {line} > /tmp/say"),
        ]);
    };
    let mut follower = Session::start(story.command(&["logs", "-f", "main"]));
    assert_eq!(follower.line(), "began");
    say("first");
    assert_eq!(follower.line(), "first");
    say("second");
    assert_eq!(follower.line(), "second");
    // The shell that says so may be ended with the container before it can report.
    story.try_kubectl(&["exec", "main", "--", "sh", "-c", "echo end > /tmp/say"]);
    assert_eq!(follower.line(), "", "a followed log ends with its container");
    story.wait_value("pod/main", "{.status.containerStatuses[0].restartCount}", "1");
    story.wait("pod/main", "condition=Ready");
    assert_eq!(story.kubectl(&["logs", "-p", "main"]), "began\nfirst\nsecond\n");
    story.until("the new log", || story.kubectl(&["logs", "main"]) == "began\n");
}

pub(crate) fn a_terminal_is_opened_in_a_container(cluster: &Cluster) {
    let story = cluster.namespace("terminal");
    run(&story, "exec sleep 10000");
    // As everywhere, the terminal's size follows the terminal a moment later; until then `stty` prints none.
    const SCRIPT: &str = "tty; until size=$(stty size 2>/dev/null | grep .); do sleep 0.1; done; \
                          echo $size; read line; echo got $line";
    let mut session = on_terminal(&story, &["exec", "-it", "main", "--", "sh", "-c", SCRIPT]);
    assert!(session.line().starts_with("/dev/pts/"), "there is a terminal");
    assert_eq!(session.line(), "40 100", "of the user's size");
    session.say("something");
    assert_eq!(session.line(), "something", "a terminal echoes");
    assert_eq!(session.line(), "got something");
    // Without a terminal input ends where it ends.
    let mut plain =
        Session::start(story.command(&["exec", "-i", "main", "--", "sh", "-c", "tty; cat; echo end"]));
    plain.say("through");
    assert_eq!(plain.rest(), "not a tty\nthrough\nend");
}

/// `script` gives kubectl a terminal, as a user's shell does.
pub(super) fn on_terminal(story: &Kubectl, arguments: &[&str]) -> Session {
    let command = story.command(arguments);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(quoted)
        .collect();
    let mut script = Command::new("script");
    script
        .arg("-qec")
        .arg(format!("stty rows 40 cols 100; {}", words.join(" ")))
        .arg("/dev/null");
    script.env("HOME", &story.folder);
    Session::start(script)
}

fn quoted(word: &std::ffi::OsStr) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"))
}

pub(crate) fn a_running_process_is_attached_to(cluster: &Cluster) {
    let story = cluster.namespace("attached");
    story.kubectl(&[
        "run",
        "main",
        IMAGE,
        PRESENT,
        "--stdin",
        "--attach=false",
        "--",
        "sh",
        "-c",
        "while read line; do echo got $line; done",
    ]);
    story.wait("pod/main", "condition=Ready");
    let mut session = Session::start(story.command(&["attach", "-i", "main"]));
    session.say("one");
    assert_eq!(session.line(), "got one");
    session.say("two");
    assert_eq!(session.line(), "got two");
    // Once the client leaves its container ends with its input, and the next one has a log of its own.
    story.until("the log to have it as well", || {
        story.kubectl(&["logs", "main"]) == "got one\ngot two\n"
    });
    drop(session);
}

pub(crate) fn a_port_is_forwarded(cluster: &Cluster) {
    let story = cluster.namespace("forwarded");
    story.kubectl(&[
        "create",
        "deployment",
        "web",
        "--image=knarr.local/hello:1",
        "--port=8080",
    ]);
    story.kubectl(&["patch", "deployment", "web", "--type=json", "-p", r#"[{"op":"replace","path":"/spec/template/spec/containers/0/imagePullPolicy","value":"IfNotPresent"}]"#]);
    story.kubectl(&["expose", "deployment", "web", "--port=80", "--target-port=8080"]);
    story.kubectl(&["rollout", "status", "deployment/web"]);
    for target in ["service/web", "deployment/web"] {
        let port = if target.starts_with("service") {
            ":80"
        } else {
            ":8080"
        };
        let mut session = Session::start(story.command(&["port-forward", target, port]));
        let said = session.line();
        let local = said
            .trim_start_matches("Forwarding from ")
            .split(' ')
            .next()
            .unwrap_or_default();
        let address = local.parse().unwrap_or_else(|_| panic!("{said}"));
        for _ in 0..5 {
            let answer = ask(&cluster.host, address).expect("an answer");
            assert!(answer.starts_with("hello from web-"), "{answer}");
        }
    }
    assert!(ask(&cluster.host, service_address(&story, "web")).is_ok());
}

pub(crate) fn a_port_is_forwarded_to_who_speaks_no_spdy(cluster: &Cluster) {
    let Some(python) = python_or_skip("a_port_is_forwarded_to_who_speaks_no_spdy") else {
        return;
    };
    let story = cluster.namespace("channels");
    let image = "knarr.local/hello:1";
    story.kubectl(&[
        "run",
        "web",
        "--image",
        image,
        "--image-pull-policy=Never",
        "--port=8080",
    ]);
    story.wait("pod/web", "condition=Ready");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/port_forward.py");
    let forwarded = |port: &str| {
        let mut client = cluster.host.command(&python);
        client.arg(&script).args(["channels", "web", port]);
        client.env("KUBECONFIG", story.kubeconfig()).stdin(Stdio::null());
        client.output().expect("Python starts")
    };
    let page = forwarded("8080");
    let (out, err) = (text(&page.stdout), text(&page.stderr));
    assert!(
        page.status.success() && out.contains("hello from web"),
        "{out}{err}"
    );
    // No process listens there: the error has a channel of its own.
    let nothing = forwarded("81");
    let (out, err) = (text(&nothing.stdout), text(&nothing.stderr));
    assert!(err.contains("error forwarding port 81"), "{out}{err}");
}

pub(crate) fn a_command_that_reads_nothing_tells_its_end(cluster: &Cluster) {
    let story = cluster.namespace("unread");
    run(&story, "exec sleep 10000");
    let input = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(input.path(), vec![b'x'; 8 << 20]).expect("a file");
    // What the client still sends while the command ends must not cost it the last words.
    for code in 1..=10 {
        let mut command = story.command(&["exec", "-i", "main", "--", "sh", "-c", &format!("exit {code}")]);
        let input = std::fs::File::open(input.path()).expect("the file");
        let output = command.stdin(input).output().expect("kubectl starts");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(
            err.contains(&format!("command terminated with exit code {code}")),
            "{err}"
        );
    }
}

pub(crate) fn files_are_copied_in_and_out(cluster: &Cluster) {
    let story = cluster.namespace("copied");
    run(&story, "exec sleep 10000");
    let folder = tempfile::tempdir().expect("a folder");
    let local = |name: &str| folder.path().join(name).display().to_string();
    // More than one frame of any of the protocols on the way.
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    std::fs::write(local("in"), &content).expect("a file");
    story.kubectl(&["cp", &local("in"), "main:/tmp/there"]);
    story.kubectl(&["exec", "main", "--", "sh", "-c", "cp /tmp/there /tmp/back"]);
    story.kubectl(&["cp", "main:/tmp/back", &local("out")]);
    assert!(
        std::fs::read(local("out")).expect("it came back") == content,
        "the same bytes"
    );
}

pub(crate) fn a_log_that_grows_is_rotated(cluster: &Cluster) {
    let story = cluster.namespace("rotated");
    // A little more than the ten mebibytes after which upstream rotates; the process is another once all is written.
    let script = "yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c 12000000; echo filled; exec sleep 10000";
    // With a share of the processors: a pod that requests none gets one thousandth of a busy machine, and fills no log there.
    let image = IMAGE.trim_start_matches("--image=");
    let container =
        format!(r#"{{"name":"main","image":"{image}","resources":{{"requests":{{"cpu":"100m"}}}}}}"#);
    let overrides = format!(r#"--overrides={{"spec":{{"containers":[{container}]}}}}"#);
    let share = [
        "run",
        "main",
        IMAGE,
        PRESENT,
        "--override-type=strategic",
        &overrides,
    ];
    story.kubectl(&[&share[..], &["--", "sh", "-c", script]].concat());
    story.wait("pod/main", "condition=Ready");
    let logs = cluster.data_dir().join("agent/logs/pods");
    let files = || {
        let folders = std::fs::read_dir(&logs).into_iter().flatten().flatten();
        let own = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("rotated_main_"));
        own.flat_map(|entry| {
            std::fs::read_dir(entry.path().join("main"))
                .into_iter()
                .flatten()
                .flatten()
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect::<Vec<_>>()
    };
    story.until("an older file beside the log", || files().len() == 2);
    assert!(files().iter().any(|name| name == "0.log"), "{:?}", files());
    // The process's name: its command line names sleep from the first on.
    let after = "until grep -q sleep /proc/1/comm; do sleep 0.1; done; echo after > /proc/1/fd/1";
    story.kubectl(&["exec", "main", "--", "sh", "-c", after]);
    story.until("the new file to be written to", || {
        story.kubectl(&["logs", "main"]).ends_with("after\n")
    });
}
