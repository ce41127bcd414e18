//! `kubectl get` in every output form, `describe`, `explain` and what the server says of itself: `output/cases.txt` holds
//! commands and what they print, word for word. `KNARR_WRITE_CASES` writes what they print now, to be read before it is kept.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]

mod support;

use std::path::Path;
use support::Server;

const OBJECTS: &str = include_str!("output/objects.yaml");
/// Begins a command; what follows up to the next is what it prints.
const PROMPT: &str = "$ kubectl ";

#[test]
fn kubectl_prints_every_form() {
    let Some(server) = Server::start_or_skip("kubectl_prints_every_form") else {
        return;
    };
    server.feed(&["create"], OBJECTS);
    server.wait_value("deployment/web", "{.status.observedGeneration}", "1");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/output/cases.txt");
    let cases = std::fs::read_to_string(&path).expect("the cases");
    let mut printed = String::new();
    for case in cases.split(PROMPT).skip(1) {
        let (command, _) = case.split_once('\n').expect("a command is a line");
        printed.push_str(&format!("{PROMPT}{command}\n{}", run(&server, command)));
    }
    if std::env::var_os("KNARR_WRITE_CASES").is_some() {
        std::fs::write(&path, &printed).expect("the cases are written");
    }
    assert_eq!(printed, cases);
}

/// Output of a command, with masks for parts that differ from run to run.
fn run(server: &Server, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let output = server.command(&words).output().expect("kubectl starts");
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(said).expect("UTF-8");
    text.lines().map(|line| masked(line) + "\n").collect()
}

/// Uids, times, revisions and ages; the kinds of value, by where they stand.
fn masked(line: &str) -> String {
    let named = ["uid", "creationTimestamp", "resourceVersion", "CreationTimestamp"];
    let key = line.trim_start().trim_start_matches('"').split([':', '"']).next();
    if key.is_some_and(|key| named.contains(&key)) {
        let comma = if line.ends_with(',') { "," } else { "" };
        let (key, _) = line.split_once(':').expect("a key and its value");
        return format!("{key}: …{comma}");
    }
    let mut masked: Vec<String> = Vec::new();
    for word in line.split(' ') {
        // An age is as wide as it is old: the room after it is not compared.
        let after_age = masked.last().is_some_and(|last| last == "…");
        match word {
            "" if after_age => {}
            word if is_age(word) => masked.push("…".to_owned()),
            word => masked.push(without_names(word)),
        }
    }
    masked.join(" ")
}

fn is_age(word: &str) -> bool {
    let digits = word.trim_end_matches(['s', 'm']);
    digits.len() < word.len() && !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == 'm')
}

/// Masks names that the server generates: the volume of a pod's token, and uids in selectors.
fn without_names(word: &str) -> String {
    for begin in ["kube-api-access-", "batch.kubernetes.io/controller-uid="] {
        if let Some(rest) = word.strip_prefix(begin) {
            let end = if rest.ends_with(':') { ":" } else { "" };
            return format!("{begin}…{end}");
        }
    }
    word.to_owned()
}
