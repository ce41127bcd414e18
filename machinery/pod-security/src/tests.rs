//! Every pod of upstream's fixtures and unit tests, at every level and version, word for word.
//!
//! A line of the table is a pod with the messages of its violations, and from which minor version on it has which of them.

use crate::{Level, LevelVersion, Pod, Version, evaluate};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use serde::Deserialize;

/// Answers of upstream's checks to each pod.
const TABLE: &str = include_str!("../testdata/upstream.jsonl");
/// The first minor version of the future that the table has.
const FUTURE: u64 = 40;

#[derive(Deserialize)]
struct Row {
    /// The fixtures of this pod: `restricted/fail/privileged0 8-37` for the minor versions 8 to 37.
    #[serde(default)]
    fixtures: Vec<String>,
    pod: ApiPod,
    violations: Vec<String>,
    baseline: Vec<Change>,
    restricted: Vec<Change>,
}

/// Violations that the pod has from a minor version on, by their places.
#[derive(Deserialize)]
struct Change(u64, Vec<usize>);

impl Row {
    fn expected(&self, level: Level, minor: u64) -> String {
        let changes = match level {
            Level::Privileged => return String::new(),
            Level::Baseline => &self.baseline,
            Level::Restricted => &self.restricted,
        };
        let change = changes.iter().rfind(|change| change.0 <= minor).unwrap();
        let violations: Vec<&str> = change.1.iter().map(|at| &*self.violations[*at]).collect();
        violations.join(", ")
    }

    fn found(&self, level: Level, version: Version) -> String {
        let spec = self.pod.spec.as_ref().unwrap();
        let annotations = self.pod.metadata.annotations.as_ref();
        evaluate(LevelVersion { level, version }, &Pod { annotations, spec }).to_string()
    }
}

fn rows() -> impl Iterator<Item = Row> {
    TABLE.lines().map(|line| serde_json::from_str(line).unwrap())
}

#[test]
fn pods_of_upstreams_fixtures_have_upstreams_messages_at_every_version() {
    let mut count = 0;
    for row in rows() {
        for level in [Level::Privileged, Level::Baseline, Level::Restricted] {
            for minor in 0..=FUTURE {
                let found = row.found(level, Version::Minor(minor));
                let expected = row.expected(level, minor);
                assert_eq!(
                    found, expected,
                    "{level:?} {minor} {:?} {:?}",
                    row.fixtures, row.pod
                );
                count += 1;
            }
            let newest = row.expected(level, FUTURE);
            assert_eq!(row.found(level, Version::Latest), newest);
            assert_eq!(row.found(level, Version::Minor(u64::MAX)), newest);
        }
    }
    assert!(count > 30_000, "{count}");
}

/// Upstream names a fixture by level, outcome and check: it has this outcome at each of its versions.
#[test]
fn fixtures_pass_and_fail_as_they_are_named() {
    let (mut passing, mut failing) = (0, 0);
    for row in rows() {
        for fixture in &row.fixtures {
            let (name, minors) = fixture.split_once(' ').unwrap();
            let (first, last) = minors.split_once('-').unwrap();
            let (level, outcome) = name.split_once('/').unwrap();
            for minor in first.parse().unwrap()..=last.parse().unwrap() {
                let found = row.found(Level::parse(level).unwrap(), Version::Minor(minor));
                let passes = outcome.starts_with("pass/");
                assert_eq!(found.is_empty(), passes, "{fixture}: {found}");
                *(if passes { &mut passing } else { &mut failing }) += 1;
            }
        }
    }
    assert_eq!((passing, failing), FIXTURES);
}

/// Files of upstream's testdata.
const FIXTURES: (usize, usize) = (1_051, 3_486);

#[test]
fn violations_are_listed_with_their_reasons() {
    let pod: ApiPod =
        serde_json::from_value(serde_json::json!({"spec": {"hostPID": true, "hostNetwork": true,
        "containers": [{"name": "a", "securityContext": {"privileged": true}}]}}))
        .unwrap();
    let spec = pod.spec.as_ref().unwrap();
    let wanted = LevelVersion {
        level: Level::Baseline,
        version: Version::Latest,
    };
    let violations = evaluate(
        wanted,
        &Pod {
            annotations: None,
            spec,
        },
    );
    assert_eq!(violations.reasons(), "host namespaces, privileged");
    assert_eq!(
        violations.to_string(),
        "host namespaces (hostNetwork=true, hostPID=true), privileged (container \"a\" must not set securityContext.privileged=true)"
    );
    assert!(
        evaluate(
            LevelVersion::PRIVILEGED,
            &Pod {
                annotations: None,
                spec
            }
        )
        .is_empty()
    );
}
