//! The Python client, as people install it: it creates, reads, watches, patches and deletes.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(clippy::print_stdout, reason = "a skipped or retried step says so")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use support::Server;
use support::python::python_or_skip;

#[test]
fn python_client_works() {
    let test = "python_client_works";
    let Some((python, server)) = python_or_skip(test).zip(Server::start_or_skip(test)) else {
        return;
    };
    let story = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/story.py");
    let output = Command::new(python)
        .arg(story)
        .env("KUBECONFIG", server.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}\n{}", server.log());
    assert_eq!(out.lines().last(), Some("all told"));
}
