use super::*;

const IMAGE: &str = "registry.test/app:1";
const ID: &str = "sha256:ab";

fn secret(name: &str, hash: &str) -> SecretCredential {
    SecretCredential {
        uid: format!("uid of {name}"),
        namespace: "n".into(),
        name: name.into(),
        credential_hash: hash.into(),
    }
}

fn records() -> (tempfile::TempDir, Arc<PullRecords>) {
    let folder = tempfile::tempdir().unwrap();
    let records = PullRecords::new(folder.path().join("image_manager"));
    (folder, records)
}

fn found(id: &str, names: &[&str]) -> Found {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Found::new(id, &names)
}

/// The image of most tests, under its name and these.
fn own(names: &[&str]) -> Found {
    let mut all = vec![IMAGE];
    all.extend(names);
    found(ID, &all)
}

fn begin(records: &Arc<PullRecords>, image: &str) -> Pulling {
    records.begin(image, None, &[]).unwrap()
}

fn pulled(found: Found, with: Option<SecretCredential>) -> Pulled {
    Pulled {
        found,
        namespace: "n".into(),
        with: PulledWith::credential(with),
    }
}

/// Pulls the image under a name of a repository, as a pod of a namespace does.
fn pull(records: &Arc<PullRecords>, image: &str, namespace: &str, with: Option<SecretCredential>) {
    let pulled = Pulled {
        namespace: namespace.to_owned(),
        ..pulled(own(&[image]), with)
    };
    begin(records, image).finished(pulled).unwrap();
}

#[test]
fn pulled_image_is_only_for_pods_with_its_credentials() {
    let (_folder, records) = records();
    let history = || records.history(IMAGE, &own(&[]));
    assert_eq!(history(), History::Preloaded);
    assert_eq!(history().access(IMAGE, []), Access::Granted);
    let pulling = begin(&records, IMAGE);
    assert_eq!(
        history().access(IMAGE, []),
        Access::Verify,
        "it has just come, from whom is not known"
    );
    let with = secret("own", "1");
    pulling.finished(pulled(own(&[]), Some(with.clone()))).unwrap();
    let access = |credentials: &[SecretCredential]| {
        let sources = credentials.iter().cloned().map(CredentialSource::Secret);
        let sources: Vec<CredentialSource> = sources.collect();
        history().access(IMAGE, &sources)
    };
    assert_eq!(access(&[]), Access::Verify);
    assert_eq!(access(&[secret("other", "2")]), Access::Verify);
    assert_eq!(access(&[secret("other", "2"), with.clone()]), Access::Granted);
    let copied = secret("copied", "1");
    assert_eq!(
        access(std::slice::from_ref(&copied)),
        Access::GrantedBy(copied),
        "the same content"
    );
    let changed = secret("own", "3");
    assert_eq!(
        access(std::slice::from_ref(&changed)),
        Access::GrantedBy(changed),
        "the same secret"
    );
    assert_eq!(
        history().access("mirror.test/app:1", [&CredentialSource::Secret(with)]),
        Access::Verify,
        "under another name"
    );
    records.add(IMAGE, pulled(own(&[]), None)).unwrap();
    assert_eq!(access(&[]), Access::Granted, "the registry gives it to everybody");
}

const BY_DIGEST: &str = "registry.test/app@sha256:ef";

#[test]
fn pulled_image_that_was_preloaded_stays_open_under_its_own_names() {
    let (_folder, records) = records();
    let names = [
        "local.test/app:1",
        "local.test/app:2",
        "other.test/app:1",
        "other.test/app@sha256:cd",
    ];
    let other = begin(&records, "other.test/app:1");
    let again = begin(&records, "local.test/app:2");
    let with = || pulled(own(&names), Some(secret("own", "1")));
    begin(&records, IMAGE).finished(with()).unwrap();
    let open = |image: &str| records.history(image, &own(&names)).is_open(image);
    assert!(open("local.test/app:1"));
    assert!(!open(IMAGE));
    assert!(!open("local.test/app:2"), "another pod is pulling it");
    assert!(!open("other.test/app:1"), "another pod is pulling it");
    assert!(!open("other.test/app@sha256:cd"), "the pull brings it");
    other.failed();
    again.failed();
    begin(&records, IMAGE).finished(with()).unwrap();
    assert!(
        !open("other.test/app:1"),
        "it was not there before the first pull"
    );
}

#[test]
fn pulled_image_that_was_preloaded_is_not_closed_by_a_pull_of_another_tag() {
    let (_folder, records) = records();
    let preloaded = own(&[BY_DIGEST]);
    let abandoned = records.begin("registry.test/app:zzz", None, std::slice::from_ref(&preloaded));
    drop(abandoned.unwrap());
    for image in [IMAGE, BY_DIGEST, "sha256:ab"] {
        assert_eq!(records.history(image, &preloaded), History::Preloaded, "{image}");
    }
    pull(&records, "evil.test/x:1", "evil", None);
    let begun = records.begin("evil.test/y:1", None, std::slice::from_ref(&preloaded));
    let all = own(&[BY_DIGEST, "evil.test/y:1"]);
    begun.unwrap().finished(pulled(all.clone(), None)).unwrap();
    assert!(records.history(IMAGE, &all).is_open(IMAGE));
}

#[test]
fn pulled_image_that_was_preloaded_stays_open_under_its_digest() {
    let (_folder, records) = records();
    let preloaded = own(&[BY_DIGEST]);
    let images = std::slice::from_ref(&preloaded);
    drop(records.begin("registry.test/app:zzz", None, images).unwrap());
    let begun = records.begin("evil.test/y:1", None, images).unwrap();
    let all = own(&[BY_DIGEST, "evil.test/y:1", "registry.test/app:zzz"]);
    begun.finished(pulled(all.clone(), None)).unwrap();
    let open = |image: &str| records.history(image, &all).is_open(image);
    assert!(open(IMAGE) && open(BY_DIGEST));
    assert!(!open("registry.test/app:zzz"));
}

#[test]
fn pulled_image_of_an_abandoned_pull_is_verified_under_all_names() {
    let (_folder, records) = records();
    drop(begin(&records, IMAGE));
    let came = own(&[BY_DIGEST]);
    for image in [IMAGE, BY_DIGEST, "sha256:ab"] {
        assert_eq!(records.history(image, &came), History::Unknown, "{image}");
    }
    let stale = records.begin("registry.test/app:2", None, std::slice::from_ref(&came));
    stale.unwrap().failed();
    assert_eq!(records.history(BY_DIGEST, &came), History::Unknown);
    // The tag has moved since.
    let left = found(ID, &[BY_DIGEST]);
    records.settle(IMAGE, None, std::slice::from_ref(&left)).unwrap();
    assert!(!records.history(BY_DIGEST, &left).is_open(BY_DIGEST));
}

#[test]
fn pulled_image_of_an_agent_that_died_is_verified() {
    let (folder, records) = records();
    std::mem::forget(begin(&records, IMAGE));
    let next = PullRecords::new(folder.path().join("image_manager"));
    assert_eq!(next.history(IMAGE, &own(&[])), History::Unknown);
    next.begin(IMAGE, Some(&own(&[])), &[]).unwrap().failed();
    assert_eq!(
        next.history(IMAGE, &own(&[])),
        History::Unknown,
        "a pull that failed says nothing of the one before it"
    );
    std::fs::create_dir_all(next.record(ID).parent().unwrap()).unwrap();
    std::fs::write(next.record(ID), "{").unwrap();
    assert_eq!(next.history(IMAGE, &own(&[])), History::Unknown, "half a record");
}

#[test]
fn pulled_image_whose_pull_was_abandoned_is_verified() {
    let (_folder, records) = records();
    let (one, other) = (begin(&records, IMAGE), begin(&records, IMAGE));
    one.failed();
    assert_eq!(
        records.history(IMAGE, &own(&[])),
        History::Unknown,
        "another is under way"
    );
    other.failed();
    assert_eq!(
        records.history(IMAGE, &own(&[])),
        History::Preloaded,
        "pulls that failed brought nothing"
    );
    let (one, other) = (begin(&records, IMAGE), begin(&records, IMAGE));
    drop(one);
    other.failed();
    assert_eq!(
        records.history(IMAGE, &own(&[])),
        History::Unknown,
        "one may have brought it all the same"
    );
}

#[test]
fn pulled_image_that_was_there_before_stays_everybodys() {
    let (_folder, records) = records();
    let open = || records.history(IMAGE, &own(&[])).is_open(IMAGE);
    let there = || records.begin(IMAGE, Some(&own(&[])), &[]).unwrap();
    let under_way = there();
    assert!(open(), "while it is pulled");
    drop(under_way);
    assert!(open(), "when the pod that pulled it has gone");
    let other = found("sha256:cd", &[IMAGE]);
    assert!(
        !records.history(IMAGE, &other).is_open(IMAGE),
        "what came instead is not"
    );
    let mirror = begin(&records, "mirror.test/app:1");
    let elsewhere = pulled(own(&["mirror.test/app:1"]), Some(secret("own", "1")));
    mirror.finished(elsewhere).unwrap();
    assert!(open(), "when another name for it is pulled with a secret");
    there()
        .finished(pulled(own(&[]), Some(secret("own", "1"))))
        .unwrap();
    assert!(open(), "when it is itself pulled with one");
}

#[test]
fn pulled_image_that_was_there_before_is_no_tenants_to_take() {
    let (_folder, records) = records();
    let pulling = records.begin(IMAGE, Some(&own(&[])), &[]).unwrap();
    pulling
        .finished(pulled(own(&[]), Some(secret("own", "1"))))
        .unwrap();
    assert!(records.history(IMAGE, &own(&[])).is_open(IMAGE));
}

#[test]
fn pull_intents_of_abandoned_pulls_are_settled() {
    let (_folder, records) = records();
    drop(begin(&records, IMAGE));
    drop(begin(&records, "gone.test/app:1"));
    let waiting = begin(&records, "busy.test/app:1");
    let abandoned = || {
        let mut abandoned = records.abandoned(&[]).unwrap();
        abandoned.sort();
        abandoned
    };
    assert_eq!(
        abandoned(),
        [("gone.test/app:1".to_owned(), 1), (IMAGE.to_owned(), 1)]
    );
    drop(begin(&records, IMAGE));
    assert_eq!(abandoned()[1].1, 2, "a later pull is another");
    records.settle("gone.test/app:1", None, &[]).unwrap();
    let came = own(&["local.test/app:1"]);
    records.settle(IMAGE, Some(&came), &[]).unwrap();
    records.settle("busy.test/app:1", None, &[]).unwrap();
    assert!(abandoned().is_empty());
    let open = |image: &str| records.history(image, &came).is_open(image);
    assert!(!open(IMAGE), "the credentials it came with are not known");
    assert!(open("local.test/app:1"), "it was there under that name");
    let busy = || records.history("busy.test/app:1", &found("sha256:cd", &[]));
    assert_eq!(busy(), History::Unknown);
    waiting.failed();
    assert_eq!(busy(), History::Preloaded);
}

#[test]
fn pull_intents_are_of_the_image_that_their_file_is_named_for() {
    let (_folder, records) = records();
    let forged = "registry.test/app:1\nfoo.bar/x:1";
    drop(begin(&records, forged));
    let intents = std::fs::read_dir(records.intents_folder()).unwrap();
    let [file] = intents
        .map(|entry| entry.unwrap().path())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let abandoned = records.abandoned(&[own(&[])]).unwrap();
    assert_eq!(abandoned, [(forged.to_owned(), 1)], "one name, whatever is in it");
    let other = Intent::of("foreign.test/app:1");
    std::fs::write(&file, other.content().unwrap()).unwrap();
    assert_eq!(records.history(IMAGE, &own(&[])), History::Preloaded);
    assert!(records.abandoned(&[own(&[])]).unwrap().is_empty());
    assert!(!file.try_exists().unwrap(), "removed");
}

#[test]
fn pull_intent_that_cannot_be_read_closes_its_image_until_it_is_settled() {
    let (_folder, records) = records();
    drop(begin(&records, IMAGE));
    std::fs::write(records.intent(IMAGE), "half an int").unwrap();
    let came = own(&[]);
    assert_eq!(records.history(IMAGE, &came), History::Unknown);
    let images = std::slice::from_ref(&came);
    assert_eq!(records.abandoned(images).unwrap(), [(IMAGE.to_owned(), 0)]);
    records.settle(IMAGE, Some(&came), images).unwrap();
    assert!(!records.history(IMAGE, &came).is_open(IMAGE));
    assert!(!records.intent(IMAGE).try_exists().unwrap());
    let long = format!("{}:1", "a".repeat(70_000));
    assert!(
        records.begin(&long, None, &[]).is_err(),
        "it would not be read again"
    );
}

#[test]
fn pull_record_keeps_what_others_pulled_when_one_namespace_fills_it() {
    let (_folder, records) = records();
    let all = own(&["local.test/app:1"]);
    begin(&records, IMAGE)
        .finished(pulled(all.clone(), Some(secret("own", "1"))))
        .unwrap();
    let name = |number: usize| format!("evil.test/{}{number}:1", "x".repeat(4_000));
    for number in 0..100 {
        pull(&records, &name(number), "evil", None);
    }
    let open = |image: &str| records.history(image, &all).is_open(image);
    assert!(open("local.test/app:1"), "preloaded");
    assert!(open(&name(0)), "the oldest stay");
    assert!(!open(&name(99)), "the newest go");
    let source = CredentialSource::Secret(secret("own", "1"));
    let access = records.history(IMAGE, &all).access(IMAGE, [&source]);
    assert_eq!(access, Access::Granted);
    pull(&records, "late.test/app:1", "late", None);
    assert!(open("late.test/app:1"), "another namespace has room");
    let length = std::fs::metadata(records.record(ID)).unwrap().len();
    assert!(length <= bounds::RECORD_BYTES_MAX as u64, "{length}");
}

#[test]
fn pull_record_that_cannot_be_read_is_not_begun_anew() {
    let (_folder, records) = records();
    pull(&records, IMAGE, "n", None);
    let path = records.record(ID);
    let long = format!("{{\"imageRef\": \"{ID}\", \"x\": \"{}\"}}", "x".repeat(1 << 20));
    for broken in ["{", &long, "{\"imageRef\": \"sha256:cd\"}"] {
        std::fs::write(&path, broken).unwrap();
        assert_eq!(records.history(IMAGE, &own(&[])), History::Unknown);
        let pulling = begin(&records, "evil.test/x:1");
        assert!(pulling.finished(pulled(own(&[]), None)).is_err());
        assert!(records.add(IMAGE, pulled(own(&[]), None)).is_err());
        assert!(records.settle("evil.test/x:1", Some(&own(&[])), &[]).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), *broken);
    }
}

#[test]
fn pull_record_of_an_older_agent_is_read() {
    let (_folder, records) = records();
    pull(&records, "evil.test/x:1", "n", None);
    let old = format!(
        "{{\"imageRef\":\"{ID}\",\"credentialMapping\":{{\"registry.test/app\":{{\"nodePodsAccessible\":true}}}}}}"
    );
    std::fs::write(records.record(ID), old).unwrap();
    assert!(records.history(IMAGE, &own(&[])).is_open(IMAGE));
}

#[test]
fn secrets_of_a_record_are_shared_by_namespaces() {
    let mut with = PulledWith::default();
    let of = |namespace: &str, name: usize| SecretCredential {
        namespace: namespace.to_owned(),
        ..secret(&name.to_string(), &name.to_string())
    };
    for number in 0..120 {
        with.merge(PulledWith::credential(Some(of("evil", number))));
    }
    with.merge(PulledWith::credential(Some(of("late", 0))));
    let count = |namespace: &str| {
        let secrets = with.kubernetes_secrets.iter();
        secrets.filter(|secret| secret.namespace == namespace).count()
    };
    assert_eq!((count("evil"), count("late")), (99, 1));
    assert_eq!(with.kubernetes_secrets[98].name, "98", "the newest has gone");
}

#[test]
fn pulled_images_that_are_gone_are_forgotten() {
    let (_folder, records) = records();
    let come = |id: &str| {
        let pulled = pulled(found(id, &[IMAGE]), None);
        begin(&records, IMAGE).finished(pulled).unwrap();
    };
    come(ID);
    come("sha256:cd");
    let looked_at = records.all();
    come("sha256:ef");
    records.forget_others(looked_at, &[own(&[])]);
    let known = |id: &str| matches!(records.history(IMAGE, &found(id, &[IMAGE])), History::Pulled(_));
    assert!(known(ID) && known("sha256:ef"));
    let gone = records.history(IMAGE, &found("sha256:cd", &[IMAGE]));
    assert_eq!(gone, History::Preloaded);
}

#[test]
fn image_pulled_by_the_token_of_an_account_is_for_pods_of_that_account() {
    let (_folder, records) = records();
    let account = |name: &str, uid: &str| {
        CredentialSource::ServiceAccount(ServiceAccountCredential {
            uid: uid.to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        })
    };
    let pulled_with = |source: CredentialSource| Pulled {
        with: PulledWith::source(Some(source)),
        ..pulled(own(&[]), None)
    };
    let first = account("web", "1");
    begin(&records, IMAGE)
        .finished(pulled_with(first.clone()))
        .unwrap();
    let access = |source: CredentialSource| records.history(IMAGE, &own(&[])).access(IMAGE, [&source]);
    assert_eq!(access(first), Access::Granted);
    for other in [account("web", "2"), account("other", "1"), CredentialSource::Node] {
        assert_eq!(access(other.clone()), Access::Verify, "{other:?}");
    }
    records.add(IMAGE, pulled_with(CredentialSource::Node)).unwrap();
    assert_eq!(
        access(account("other", "1")),
        Access::Granted,
        "every pod has what the node has"
    );
}
