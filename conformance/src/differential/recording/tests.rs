use std::collections::BTreeSet;

use super::*;
use crate::differential::case;
use crate::facts::Facts;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn case(id: &str, request: &str) -> Case {
    Case {
        id: id.to_owned(),
        requires: Vec::new(),
        steps: vec![
            serde_json::from_value(json!({"request": request})).unwrap(),
            serde_json::from_value(json!({"request": "GET {item}"})).unwrap(),
        ],
        subject: None,
        live_only: None,
    }
}

fn transcript() -> Transcript {
    let wide: Value = (0..40).map(|number| json!({"name": number})).collect();
    let seen = |status| Seen {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: json!({"line\nbreak": "a \u{2028} é", "wide": wide, "nothing": null}),
    };
    let answer = |step, status| StepAnswer {
        step,
        request: "GET /api/v1/namespaces/case-1/x".into(),
        seen: seen(status),
    };
    Transcript(vec![answer(1, 201), answer(2, 200)])
}

#[test]
fn recording_reads_back_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (case("core/a:b", "POST {collection}"), case("apps/a:b", "GET /"));
    let mut recordings = Recordings::new("v1.2.3");
    recordings.insert(&one, transcript()).unwrap();
    recordings.insert(&other, transcript()).unwrap();
    recordings.write(folder.path()).unwrap();
    let read = Recordings::read(folder.path()).unwrap();
    assert_eq!(read, recordings);
    assert_eq!(read.answers(&one).unwrap().0[1].request, "GET {item}");
    assert_eq!(read.answers(&one).unwrap().0[1].seen, transcript().0[1].seen);
    recordings.retain(|id| id.starts_with("core/"));
    recordings.write(folder.path()).unwrap();
    assert_eq!(
        Recordings::read(folder.path()).unwrap().ids().collect::<Vec<_>>(),
        ["core/a:b"]
    );
}

#[test]
fn recording_that_is_missing_or_stale_names_the_command() {
    let mut recordings = Recordings::new("v1.2.3");
    recordings
        .insert(&case("core/a:b", "GET /a"), transcript())
        .unwrap();
    let message = |case: &Case| recordings.answers(case).unwrap_err().to_string();
    assert_eq!(
        message(&case("core/c:d", "GET /a")),
        "no answers of kube-apiserver are recorded; run `cargo xtask diff --record --only core/c:d`"
    );
    assert_eq!(
        message(&case("core/a:b", "GET /b")),
        "the case has changed since the answers of kube-apiserver were recorded; run `cargo xtask diff --record --only core/a:b`"
    );
}

/// The quick half of the replay: it needs no server.
#[test]
fn recordings_are_those_of_the_cases_and_of_the_pinned_version() {
    let facts = Facts::read(&folder("../machinery/api/facts")).unwrap();
    let cases = case::read_all(&folder("cases"), &facts).unwrap();
    let recordings = Recordings::read(&folder("recordings")).unwrap();
    let ids: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    let mut problems: Vec<String> = cases
        .iter()
        .filter(|case| case.live_only.is_none())
        .filter_map(|case| Some(format!("{}: {}", case.id, recordings.answers(case).err()?)))
        .collect();
    let gone = recordings.ids().filter(|id| !ids.contains(id));
    problems.extend(gone.map(|id| format!("{id}: the case is gone; run `cargo xtask diff --record`")));
    let pinned = fs::read_to_string(folder("tools/go.mod")).unwrap();
    if !pinned.contains(&format!("k8s.io/kubernetes {}\n", recordings.version)) {
        problems.push(format!(
            "{} is recorded and another version pinned; run `cargo xtask diff --record`",
            recordings.version
        ));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Keys in PEM, plain and in base64; tokens, whose first part is a JSON object; folders. `cargo xtask tidy` knows more of them.
const SECRETS: [&str; 4] = ["PRIVATE KEY", "LS0tLS1CRUdJTiBQUk", "\"eyJ", "/home/"];

#[test]
fn recordings_are_small_and_hold_nothing_of_the_machine_that_made_them() {
    let texts = files(&folder("recordings")).unwrap();
    let mut bytes = 0;
    for path in texts {
        let text = fs::read_to_string(&path).unwrap();
        bytes += text.len();
        for (number, line) in text.lines().enumerate() {
            for secret in SECRETS {
                assert!(
                    !line.contains(secret),
                    "{}:{}: {secret}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
    assert!(bytes < 6 << 20, "{bytes} bytes");
}
