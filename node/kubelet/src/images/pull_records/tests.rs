use super::*;

const NAME: &str = "registry.test/app";
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

#[test]
fn pulled_image_is_only_for_pods_with_its_credentials() {
    let (_folder, records) = records();
    let history = || records.history(IMAGE, ID);
    assert_eq!(history(), History::Preloaded);
    assert_eq!(history().access(NAME, []), Access::Granted);
    let pulling = records.begin(IMAGE, None).unwrap();
    assert_eq!(
        history().access(NAME, []),
        Access::Verify,
        "it has just come, from whom is not known"
    );
    let own = secret("own", "1");
    pulling.finished(ID, pulled(&[], Some(own.clone()))).unwrap();
    let access = |credentials: &[SecretCredential]| {
        let sources = credentials.iter().cloned().map(CredentialSource::Secret);
        let sources: Vec<CredentialSource> = sources.collect();
        history().access(NAME, &sources)
    };
    assert_eq!(access(&[]), Access::Verify);
    assert_eq!(access(&[secret("other", "2")]), Access::Verify);
    assert_eq!(access(&[secret("other", "2"), own.clone()]), Access::Granted);
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
        history().access("mirror.test/app", [&CredentialSource::Secret(own)]),
        Access::Verify,
        "under another name"
    );
    records.add(NAME, ID, PulledWith::credential(None)).unwrap();
    assert_eq!(access(&[]), Access::Granted, "the registry gives it to everybody");
}

fn pulled(names: &[&str], with: Option<SecretCredential>) -> Pulled {
    Pulled {
        repository: NAME.into(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        with: PulledWith::credential(with),
    }
}

#[test]
fn pulled_image_that_was_preloaded_stays_open_under_its_own_name() {
    let (_folder, records) = records();
    let other = records.begin("other.test/app:1", None).unwrap();
    let names = [IMAGE, "local.test/app:1", "other.test/app@sha256:cd"];
    let with = || pulled(&names, Some(secret("own", "1")));
    records.begin(IMAGE, None).unwrap().finished(ID, with()).unwrap();
    let open = |repository: &str| records.history(IMAGE, ID).is_open(repository);
    assert!(open("local.test/app"));
    assert!(!open(NAME));
    assert!(!open("other.test/app"), "another pod is pulling it");
    other.failed();
    records.begin(IMAGE, None).unwrap().finished(ID, with()).unwrap();
    assert!(!open("other.test/app"), "it was not there before the first pull");
}

#[test]
fn pulled_image_of_an_agent_that_died_is_verified() {
    let (folder, records) = records();
    std::mem::forget(records.begin(IMAGE, None).unwrap());
    let next = PullRecords::new(folder.path().join("image_manager"));
    assert_eq!(next.history(IMAGE, ID), History::Unknown);
    next.begin(IMAGE, Some(ID)).unwrap().failed();
    assert_eq!(
        next.history(IMAGE, ID),
        History::Unknown,
        "a pull that failed says nothing of the one before it"
    );
    std::fs::create_dir_all(next.record(ID).parent().unwrap()).unwrap();
    std::fs::write(next.record(ID), "{").unwrap();
    assert_eq!(next.history(IMAGE, ID), History::Unknown, "half a record");
}

#[test]
fn pulled_image_whose_pull_was_abandoned_is_verified() {
    let (_folder, records) = records();
    let (one, other) = (
        records.begin(IMAGE, None).unwrap(),
        records.begin(IMAGE, None).unwrap(),
    );
    one.failed();
    assert_eq!(
        records.history(IMAGE, ID),
        History::Unknown,
        "another is under way"
    );
    other.failed();
    assert_eq!(
        records.history(IMAGE, ID),
        History::Preloaded,
        "pulls that failed brought nothing"
    );
    let (one, other) = (
        records.begin(IMAGE, None).unwrap(),
        records.begin(IMAGE, None).unwrap(),
    );
    drop(one);
    other.failed();
    assert_eq!(
        records.history(IMAGE, ID),
        History::Unknown,
        "one may have brought it all the same"
    );
}

#[test]
fn pulled_image_that_was_there_before_stays_everybodys() {
    let (_folder, records) = records();
    let open = || records.history(IMAGE, ID).is_open(NAME);
    let under_way = records.begin(IMAGE, Some(ID)).unwrap();
    assert!(open(), "while it is pulled");
    drop(under_way);
    assert!(open(), "when the pod that pulled it has gone");
    assert!(
        !records.history(IMAGE, "sha256:cd").is_open(NAME),
        "what came instead is not"
    );
    let mirror = records.begin("mirror.test/app:1", None).unwrap();
    let elsewhere = Pulled {
        repository: "mirror.test/app".into(),
        ..pulled(&[IMAGE], Some(secret("own", "1")))
    };
    mirror.finished(ID, elsewhere).unwrap();
    assert!(open(), "when another name for it is pulled with a secret");
    let again = records.begin(IMAGE, Some(ID)).unwrap();
    again
        .finished(ID, pulled(&[IMAGE], Some(secret("own", "1"))))
        .unwrap();
    assert!(open(), "when it is itself pulled with one");
}

#[test]
fn pulled_image_that_was_there_before_is_no_tenants_to_take() {
    let (_folder, records) = records();
    let pulling = records.begin(IMAGE, Some(ID)).unwrap();
    pulling
        .finished(ID, pulled(&[IMAGE], Some(secret("own", "1"))))
        .unwrap();
    assert!(records.history(IMAGE, ID).is_open(NAME));
}

#[test]
fn pull_intents_of_abandoned_pulls_are_settled() {
    let (_folder, records) = records();
    drop(records.begin(IMAGE, None).unwrap());
    drop(records.begin("gone.test/app:1", None).unwrap());
    let waiting = records.begin("busy.test/app:1", None).unwrap();
    let mut abandoned = records.abandoned();
    abandoned.sort();
    assert_eq!(abandoned, ["gone.test/app:1", IMAGE]);
    records.settle("gone.test/app:1", None).unwrap();
    records
        .settle(IMAGE, Some((ID, vec!["local.test/app:1".into()])))
        .unwrap();
    records.settle("busy.test/app:1", None).unwrap();
    assert_eq!(records.abandoned(), [""; 0]);
    let open = |repository: &str| records.history(IMAGE, ID).is_open(repository);
    assert!(!open(NAME), "the credentials it came with are not known");
    assert!(open("local.test/app"), "it was there under that name");
    assert_eq!(records.history("busy.test/app:1", "sha256:cd"), History::Unknown);
    waiting.failed();
    assert_eq!(
        records.history("busy.test/app:1", "sha256:cd"),
        History::Preloaded
    );
}

#[test]
fn pulled_images_that_are_gone_are_forgotten() {
    let (_folder, records) = records();
    for id in [ID, "sha256:cd"] {
        records.add(NAME, id, PulledWith::credential(None)).unwrap();
    }
    let looked_at = records.all();
    records
        .add(NAME, "sha256:ef", PulledWith::credential(None))
        .unwrap();
    records.forget_others(looked_at, &[ID.to_owned()]);
    let known = |id: &str| matches!(records.history(IMAGE, id), History::Pulled(_));
    assert!(known(ID) && known("sha256:ef"));
    assert_eq!(records.history(IMAGE, "sha256:cd"), History::Preloaded);
}

#[test]
fn image_pulled_by_the_token_of_an_account_is_for_pods_of_that_account() {
    let folder = tempfile::tempdir().unwrap();
    let records = PullRecords::new(folder.path().to_owned());
    let account = |name: &str, uid: &str| {
        CredentialSource::ServiceAccount(ServiceAccountCredential {
            uid: uid.to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        })
    };
    let own = account("web", "1");
    records
        .add(NAME, ID, PulledWith::source(Some(own.clone())))
        .unwrap();
    let access = |source: CredentialSource| records.history(NAME, ID).access(NAME, [&source]);
    assert_eq!(access(own), Access::Granted);
    for other in [account("web", "2"), account("other", "1"), CredentialSource::Node] {
        assert_eq!(access(other.clone()), Access::Verify, "{other:?}");
    }
    records
        .add(NAME, ID, PulledWith::source(Some(CredentialSource::Node)))
        .unwrap();
    assert_eq!(
        access(account("other", "1")),
        Access::Granted,
        "every pod has what the node has"
    );
}
