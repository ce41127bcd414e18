//! `knarr check`: one line per finding, each with what to do, and a failure when something is missing.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

use std::process::{Command, Output};

fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_knarr"));
    command.arg("check").args(arguments);
    command.output().expect("the built binary starts")
}

fn lines(output: &Output) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let split = |line: &str| {
        line.split_once(' ')
            .map(|(grade, rest)| (grade.to_owned(), rest.trim().to_owned()))
    };
    text.lines().filter_map(split).collect()
}

#[test]
fn check_every_finding_is_a_line_with_a_grade() {
    let output = check(&[]);
    let lines = lines(&output);
    assert!(lines.len() > 8, "{lines:?}");
    for (grade, text) in &lines {
        assert!(
            ["ok", "advice", "missing"].contains(&grade.as_str()) && !text.is_empty(),
            "{grade} {text}"
        );
    }
    for program in ["containerd", "runc", "nft", "ip"] {
        let told = |text: &String| text.starts_with(&format!("{program} is "));
        assert!(lines.iter().any(|(_, text)| told(text)), "{program}");
    }
    let missing = lines.iter().filter(|(grade, _)| grade == "missing").count();
    assert_eq!(output.status.success(), missing == 0);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = format!("knarr: {missing} requirement");
    assert!(
        complaint.is_empty() == (missing == 0) && (missing == 0 || complaint.starts_with(&expected)),
        "{complaint}"
    );
}

#[test]
fn check_missing_requirements_come_with_advice() {
    let long = format!("/tmp/{}", "long/".repeat(20));
    let output = check(&["--data-dir", &long]);
    assert!(!output.status.success());
    let found = lines(&output);
    let advice = "is too long for socket paths: choose a shorter one";
    assert!(
        found
            .iter()
            .any(|(grade, text)| grade == "missing" && text.ends_with(advice)),
        "{found:?}"
    );
}

#[test]
fn check_control_plane_alone_needs_little() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = check(&[
        "--disable-agent",
        "--data-dir",
        &folder.path().display().to_string(),
    ]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found = lines(&output);
    assert!(
        found
            .iter()
            .all(|(_, text)| !text.contains("root") && !text.contains("containerd")),
        "{found:?}"
    );
}

#[test]
fn check_without_root_says_what_to_do() {
    if !nix::unistd::geteuid().is_root() {
        let found = lines(&check(&[]));
        assert!(
            found
                .iter()
                .any(|(grade, text)| grade == "missing" && text.starts_with("not root: run as root"))
        );
        return;
    }
    // Root gives itself up for the child; the binary must be where any user may read it.
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("knarr");
    std::fs::copy(env!("CARGO_BIN_EXE_knarr"), &program).expect("a copy");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("open to all");
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--clear-groups"])
        .arg(&program)
        .arg("check");
    let output = command.output().expect("setpriv of util-linux");
    let found = lines(&output);
    let advice = "not root: run as root, or start the server with --disable-agent";
    assert!(
        found
            .iter()
            .any(|(grade, text)| grade == "missing" && text == advice),
        "{found:?}"
    );
    assert!(!output.status.success());
}
