use super::monitors::counted;
use super::reconcile::{Status, Waits, is_dirty, status};
use machinery_meta::{GroupResource, ObjectKey};
use machinery_semantics::ResourceList;
use machinery_semantics::quota::{DeviceClasses, Quota};
use std::collections::BTreeSet;
use std::time::Duration;

fn list(amounts: &[(&str, &str)]) -> ResourceList {
    let amounts = amounts.iter();
    ResourceList(
        amounts
            .map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap()))
            .collect(),
    )
}

fn quota(wanted: &[(&str, &str)]) -> Quota {
    Quota {
        wanted: list(wanted),
        ..Quota::default()
    }
}

/// Status cases of upstream's `TestSyncResourceQuota`: none yet, limits that changed, usage that went, no change.
#[test]
fn quota_status_is_of_its_limits_alone() {
    let mut own = quota(&[("cpu", "4"), ("pods", "5")]);
    let found = list(&[("cpu", "200m"), ("pods", "2")]);
    let first = status(&own, &found);
    let expected = Status {
        hard: list(&[("cpu", "4"), ("pods", "5")]),
        used: found.clone(),
    };
    assert_eq!(first, expected);
    assert!(is_dirty(&own, &first));
    own.hard = Some(first.hard.clone());
    own.used = Some(first.used.clone());
    assert!(!is_dirty(&own, &status(&own, &found)));
    // A limit that went takes its usage along, and what cannot be counted stays as it was.
    own.wanted = list(&[("pods", "5")]);
    let second = status(&own, &list(&[]));
    assert_eq!(second.used, list(&[("pods", "2")]));
    assert!(is_dirty(&own, &second));
    let freed = status(&own, &list(&[("pods", "1")]));
    assert_eq!(freed.used, list(&[("pods", "1")]));
}

#[test]
fn quota_has_those_resources_watched_that_it_counts() {
    let own = quota(&[
        ("requests.cpu", "1"),
        ("count/widgets.example.com", "1"),
        ("secrets", "1"),
        ("count/events", "1"),
        ("requests.storage", "1Gi"),
    ]);
    let names = counted(&own, &DeviceClasses::default());
    let expected = [
        ("", "persistentvolumeclaims"),
        ("", "pods"),
        ("", "secrets"),
        ("example.com", "widgets"),
    ];
    let expected: BTreeSet<GroupResource> = expected
        .iter()
        .map(|(group, resource)| GroupResource::new(*group, *resource))
        .collect();
    assert_eq!(names, expected);
}

#[test]
fn quota_that_counts_what_never_lists_waits_longer_each_time() {
    let (waits, quota, other) = (
        Waits::default(),
        ObjectKey::new("n", "q"),
        ObjectKey::new("n", "r"),
    );
    let all: Vec<Duration> = (0..40).map(|_| waits.next(&quota)).collect();
    assert_eq!(all[..3], [100, 200, 400].map(Duration::from_millis));
    assert_eq!(all[39], Duration::from_secs(300));
    assert!(all.is_sorted());
    assert_eq!(waits.next(&other), Duration::from_millis(100));
    waits.end(&quota);
    assert_eq!(waits.next(&quota), Duration::from_millis(100));
}
