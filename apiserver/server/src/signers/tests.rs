//! Permitted writes by the rights on `signers`.

use super::*;
use apiserver_auth::authz::{Authorizer, AuthzFuture, Busy, Decision, Reason, UserRules};
use apiserver_registry::OperationOptions;
use machinery_meta::{GroupVersionKind, GroupVersionResource};
use machinery_runtime::Runtime;
use std::sync::Arc;

/// A request for the certificate of `bob` in `system:masters`.
const OF_MASTERS: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIaE1JR0pBZ0VBTUNjeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRwdFlYTjBaWEp6TVF3d0NnWURWUVFEREFOaQpiMkl3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVRkbTV0aXl2L3U2dHFUdnpZUmJ0L0FlTVFQCkVCRnMzUDdnV3hNVjJxL3NIS0xuQWJpTncvS3ZzTndOQnBQUThIWjRKaC9pZVNSaWJKN3JLd2xHQk4wWm9BQXcKQ2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnRjVJcHFlS3MwZVp6c3FnYmJDSVJSbks4OUV5QUE4NTJiQWJkcXgrcQpJVVVDSUVyeUw3djRad01BenJlRmJOTHdQOTRLRVAzQ0hxMUVOditjdzNDQXV5VmgKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

/// A verb on a signer, or on a domain's.
#[derive(Debug)]
struct Grant(&'static str, &'static str);

impl Authorizer for Grant {
    fn name(&self) -> &'static str {
        "grant"
    }

    fn authorize<'a>(
        &'a self,
        attributes: &'a AuthzAttributes<'a>,
    ) -> AuthzFuture<'a, Result<Decision, Busy>> {
        let is_granted = match &attributes.target {
            AttributesTarget::Resource(target) => {
                (target.group, target.resource) == (GROUP, "signers")
                    && (attributes.verb, target.name) == (self.0, self.1)
            }
            _ => false,
        };
        let decision = if is_granted {
            Decision::Allow
        } else {
            Decision::NoOpinion
        };
        Box::pin(std::future::ready(Ok(decision(Reason::None))))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}

/// An authorizer that has too much under way to decide.
#[derive(Debug)]
struct Crowded;

impl Authorizer for Crowded {
    fn name(&self) -> &'static str {
        "crowded"
    }

    fn authorize<'a>(&'a self, _: &'a AuthzAttributes<'a>) -> AuthzFuture<'a, Result<Decision, Busy>> {
        Box::pin(std::future::ready(Err(Busy)))
    }

    fn rules_for<'a>(&'a self, _: &'a UserInfo, _: &'a str) -> AuthzFuture<'a, UserRules> {
        Box::pin(std::future::ready(UserRules::default()))
    }
}

/// Asks of a write: the resource with its subresource, what is written over what, and what its user may.
struct Write {
    resource: &'static str,
    object: String,
    old: Option<String>,
}

impl Write {
    async fn allowed_by(&self, grant: Grant) -> Result<(), String> {
        let checked = self.checked(Arc::new(grant)).await;
        checked.map_err(|error| match error {
            RegistryError::Invalid { errors, .. } => errors[0].to_string(),
            other => other.to_string(),
        })
    }

    async fn checked(&self, authorizer: Arc<dyn Authorizer>) -> Result<(), RegistryError> {
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((self.resource, ""));
        let attributes = Attributes {
            operation: match self.old {
                Some(_) => Operation::Update,
                None => Operation::Create,
            },
            kind: GroupVersionKind::new(GROUP, "v1", "Kind"),
            resource: GroupVersionResource {
                group: GROUP.to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
            },
            built_in: None,
            subresource: subresource.to_owned(),
            namespace: String::new(),
            name: "x".to_owned(),
            addressed: self.old.is_some(),
            dry_run: false,
            options: OperationOptions::None,
        };
        let tree = |text: &String| Tree::from_json(text).unwrap();
        let old = self.old.as_ref().map(tree);
        let user = UserInfo::named("carol", [UserInfo::AUTHENTICATED]);
        let ctx = RequestContext::internal(user, Runtime::real());
        let chain = AuthorizerChain::new(vec![authorizer]);
        check(&chain, &ctx, &attributes, &tree(&self.object), old.as_ref()).await
    }
}

fn named(signer: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"{signer}"}}{rest}}}"#)
}

fn change(resource: &'static str, old: &str, new: &str) -> Write {
    let (object, old) = (named("a.io/s", new), Some(named("a.io/s", old)));
    Write {
        resource,
        object,
        old,
    }
}

fn bundle(old: Option<&str>, new: &str) -> Write {
    let of = |more: &str| {
        format!(r#"{{"metadata":{{"name":"x"{more}}},"spec":{{"signerName":"a.io/s","trustBundle":""}}}}"#)
    };
    Write {
        resource: "clustertrustbundles",
        object: of(new),
        old: old.map(of),
    }
}

const CERTIFICATE: &str = r#","status":{"certificate":"bmV3"}"#;
const CONDITION: &str = r#","status":{"conditions":[{"type":"Failed"}]}"#;
const REQUESTS: &str = "certificatesigningrequests";

#[tokio::test]
async fn signer_right_that_nobody_decided_is_no_refusal() {
    let write = change("certificatesigningrequests/approval", "", CONDITION);
    let checked = write.checked(Arc::new(Crowded)).await;
    assert!(
        matches!(checked, Err(RegistryError::TooManyRequests { .. })),
        "{checked:?}"
    );
}

#[tokio::test]
async fn signer_right_matches_name_or_domain() {
    let writes = [
        (
            "approve",
            change("certificatesigningrequests/approval", "", CONDITION),
            "approve requests with",
        ),
        (
            "sign",
            change("certificatesigningrequests/status", "", CERTIFICATE),
            "sign requests with",
        ),
        (
            "sign",
            change("certificatesigningrequests/status", "", CONDITION),
            "sign requests with",
        ),
        ("attest", bundle(None, ""), "attest for"),
        ("attest", bundle(Some(""), r#","labels":{"a":"b"}"#), "attest for"),
    ];
    for (verb, write, words) in writes {
        let what = format!("{verb} {} {}", write.resource, write.object);
        for signer in ["a.io/s", "a.io/*"] {
            assert_eq!(write.allowed_by(Grant(verb, signer)).await, Ok(()), "{what}");
        }
        for (other_verb, signer) in [
            ("update", "a.io/s"),
            (verb, "a.io/t"),
            (verb, "b.io/*"),
            (verb, "*"),
        ] {
            let refused = write.allowed_by(Grant(other_verb, signer)).await.unwrap_err();
            let said = format!("is forbidden: user not permitted to {words} signerName \"a.io/s\"");
            assert!(
                refused.contains(&said),
                "{what} with {other_verb} on {signer}: {refused}"
            );
        }
    }
}

#[tokio::test]
async fn requests_of_pods_are_refused_as_invalid() {
    let write = change(
        "podcertificaterequests/status",
        "",
        r#","status":{"certificateChain":"x"}"#,
    );
    assert_eq!(write.allowed_by(Grant("sign", "a.io/*")).await, Ok(()));
    let refused = write.allowed_by(Grant("sign", "b.io/*")).await.unwrap_err();
    let said = r#"spec.signerName: Forbidden: User "carol" is not permitted to "sign" for signer "a.io/s""#;
    assert_eq!(refused, said);
}

/// Writes that speak for no signer.
#[tokio::test]
async fn other_writes_need_no_right() {
    let writes = [
        Write {
            resource: REQUESTS,
            object: named("a.io/s", ""),
            old: None,
        },
        change("certificatesigningrequests/status", CERTIFICATE, CERTIFICATE),
        change("podcertificaterequests/status", CONDITION, CONDITION),
        Write {
            resource: "podcertificaterequests",
            object: named("a.io/s", ""),
            old: None,
        },
        Write {
            resource: "clustertrustbundles",
            object: named("", ""),
            old: None,
        },
        bundle(Some(r#","finalizers":["a.io/f"]"#), r#","ownerReferences":[]"#),
    ];
    for write in writes {
        let allowed = write.allowed_by(Grant("none", "none")).await;
        assert_eq!(allowed, Ok(()), "{} {}", write.resource, write.object);
    }
}

/// The signer is that of the stored request, whatever the write says.
#[tokio::test]
async fn signer_is_taken_from_stored_request() {
    let write = Write {
        resource: "certificatesigningrequests/approval",
        object: named("b.io/s", CONDITION),
        old: Some(named("a.io/s", "")),
    };
    assert!(write.allowed_by(Grant("approve", "b.io/s")).await.is_err());
    assert_eq!(write.allowed_by(Grant("approve", "a.io/s")).await, Ok(()));
}

#[tokio::test]
async fn signing_request_for_masters_is_refused() {
    let of = |signer: &str| Write {
        resource: REQUESTS,
        object: format!(
            r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"{signer}","request":"{OF_MASTERS}"}}}}"#
        ),
        old: None,
    };
    let refused = of(CLIENT_SIGNER)
        .allowed_by(Grant("sign", CLIENT_SIGNER))
        .await
        .unwrap_err();
    let said = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert!(refused.contains(said), "{refused}");
    assert_eq!(of("a.io/s").allowed_by(Grant("none", "none")).await, Ok(()));
}

/// A text of two blocks, of which another reader than the signer's took the first.
#[tokio::test]
async fn signing_request_is_read_by_one_reader() {
    let glued = "-----BEGIN CERTIFICATE REQUEST-----\nAQID-----END CERTIFICATE REQUEST-----\n";
    let masters = STANDARD.decode(OF_MASTERS).unwrap();
    let text = STANDARD.encode([glued.as_bytes(), &masters].concat());
    let write = Write {
        resource: REQUESTS,
        object: format!(
            r#"{{"metadata":{{"name":"x"}},"spec":{{"signerName":"{CLIENT_SIGNER}","request":"{text}"}}}}"#
        ),
        old: None,
    };
    let refused = write.allowed_by(Grant("sign", CLIENT_SIGNER)).await.unwrap_err();
    assert!(
        refused.contains("system:masters group is not allowed"),
        "{refused}"
    );
}

#[derive(serde::Deserialize)]
struct NodeRequest {
    name: String,
    spec: serde_json::Value,
    why: String,
}

#[test]
fn csr_of_a_node_names_that_node() {
    let table = include_str!("../../testdata/node_requests.json");
    let cases: Vec<NodeRequest> = serde_json::from_str(table).unwrap();
    let attributes = Attributes {
        operation: Operation::Create,
        kind: GroupVersionKind::new(GROUP, "v1", "CertificateSigningRequest"),
        resource: GroupVersionResource {
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            resource: "certificatesigningrequests".to_owned(),
        },
        built_in: None,
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        addressed: false,
        dry_run: false,
        options: OperationOptions::None,
    };
    for case in cases {
        let object = serde_json::json!({ "spec": case.spec }).to_string();
        let object = Tree::from_json(&object).unwrap();
        let why = other_node(&UserInfo::node("mynode"), &attributes, &object);
        assert_eq!(why.unwrap_or_default(), case.why, "{}", case.name);
        let another = UserInfo::named("bob", [UserInfo::AUTHENTICATED]);
        assert_eq!(other_node(&another, &attributes, &object), None, "{}", case.name);
    }
}
