//! `serviceaccounts/token`: signing a token for an account (`TokenRequest`).

use crate::jwt::{self, Claims, JwtError, KubernetesClaims, ObjectClaim, SigningKey};
use crate::trusted;
use jiff::{SignedDuration, Timestamp};
use machinery_api::pod::PodView;
use machinery_api::{StoredError, read_stored};
use machinery_meta::field::Shown;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{FieldError, FieldPath, GroupResource, ObjectKey, syntax};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const DEFAULT_EXPIRATION_SECONDS: i64 = 3_600;
const MIN_EXPIRATION_SECONDS: i64 = 600;
const MAX_EXPIRATION_SECONDS: i64 = 1 << 32;
/// The lifetime that the ServiceAccount admission plugin requests; such tokens live longer, and their use is warned
/// of.
pub const WARN_ONLY_EXPIRATION_SECONDS: i64 = 3_607;
/// The lifetime of tokens that are extended.
pub const EXTENDED_EXPIRATION_SECONDS: i64 = 365 * 24 * 3_600;

/// `authentication.k8s.io` `TokenRequestSpec`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenRequestSpec {
    /// Null in a request that names none.
    #[serde(deserialize_with = "null_is_empty")]
    pub audiences: Vec<String>,
    pub expiration_seconds: Option<i64>,
    pub bound_object_ref: Option<BoundObjectReference>,
    /// Of tokens bound to webhooks, which are behind a feature gate that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestations: Option<BTreeMap<String, Option<Vec<String>>>>,
}

fn null_is_empty<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::<Vec<String>>::deserialize(deserializer)?.unwrap_or_default())
}

/// The object whose deletion ends the token's validity.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BoundObjectReference {
    pub kind: String,
    pub api_version: String,
    pub name: String,
    pub uid: String,
}

/// `TokenRequestStatus`, and the spec as the answer shows it.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    pub token: String,
    pub expiration_timestamp: Timestamp,
    /// `JTI=…`, for the audit log.
    pub credential_id: String,
}

/// Failures to issue a token; each has one HTTP answer.
#[derive(Debug, thiserror::Error)]
pub enum TokenRequestError {
    #[error("the request is invalid")]
    Invalid(Vec<FieldError>),
    #[error("{resource} {name:?} not found")]
    NotFound { resource: GroupResource, name: String },
    #[error("{0}")]
    BadRequest(String),
    #[error("{cause}")]
    Conflict {
        resource: GroupResource,
        name: String,
        cause: String,
    },
    #[error("failed to generate token")]
    Signing(#[from] JwtError),
    #[error("the bound pod cannot be read")]
    Unreadable(#[from] StoredError),
}

/// Issues tokens in the cluster's name.
#[derive(Debug)]
pub struct TokenIssuer {
    pub issuer: String,
    pub api_audiences: Vec<String>,
    pub key: SigningKey,
    pub lifetimes: TokenLifetimes,
}

/// Bounds of the lifetimes of tokens.
#[derive(Debug, Clone, Copy)]
pub struct TokenLifetimes {
    /// Seconds that a token is valid at most; 0 sets no bound.
    pub maximum_seconds: i64,
    /// Tokens that the ServiceAccount admission plugin requests live for a year, whatever the maximum is.
    pub extends: bool,
}

/// The account requested.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

#[derive(Default)]
struct Bound {
    pod: Option<ObjectClaim>,
    node: Option<ObjectClaim>,
    secret: Option<ObjectClaim>,
}

impl TokenIssuer {
    /// Fills in what a request leaves to the server, and validates it.
    ///
    /// # Errors
    /// The request is invalid.
    pub fn complete(&self, spec: &mut TokenRequestSpec) -> Result<(), TokenRequestError> {
        if spec.audiences.is_empty() {
            spec.audiences.clone_from(&self.api_audiences);
        }
        let seconds = *spec.expiration_seconds.get_or_insert(DEFAULT_EXPIRATION_SECONDS);
        match validate(seconds, spec) {
            problems if problems.is_empty() => Ok(()),
            problems => Err(TokenRequestError::Invalid(problems)),
        }
    }

    /// A token for the account by a [complete](Self::complete) request. `id` becomes `jti`.
    pub async fn issue(
        &self,
        reader: &dyn ObjectReader,
        account: Account<'_>,
        spec: &TokenRequestSpec,
        now: Timestamp,
        id: String,
    ) -> Result<IssuedToken, TokenRequestError> {
        let seconds = self.shortened(spec.expiration_seconds.unwrap_or(DEFAULT_EXPIRATION_SECONDS));
        let bound = match &spec.bound_object_ref {
            Some(reference) => bind(reader, account, reference).await?,
            None => Bound::default(),
        };
        let audiences = spec.audiences.clone();
        let (lifetime, warn_after) = self.lifetime(seconds, &audiences, bound.pod.is_some());
        let issued = now.as_second();
        let claims = Claims {
            aud: audiences.clone(),
            exp: issued + lifetime,
            iat: issued,
            nbf: issued,
            iss: self.issuer.clone(),
            jti: id.clone(),
            sub: format!("system:serviceaccount:{}:{}", account.namespace, account.name),
            kubernetes: KubernetesClaims {
                namespace: account.namespace.to_owned(),
                node: bound.node,
                pod: bound.pod,
                secret: bound.secret,
                serviceaccount: ObjectClaim {
                    name: account.name.to_owned(),
                    uid: account.uid.to_owned(),
                },
                warnafter: warn_after.map(|after| issued + after),
            },
        };
        // Clients renew by the short time even where the token lives longer.
        let shown = now
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap_or(Timestamp::MAX);
        Ok(IssuedToken {
            audiences,
            expiration_seconds: seconds,
            token: jwt::sign(&self.key, &claims)?,
            expiration_timestamp: shown,
            credential_id: format!("JTI={id}"),
        })
    }

    /// Seconds that a request for so many gets.
    fn shortened(&self, requested: i64) -> i64 {
        match self.lifetimes.maximum_seconds {
            maximum if maximum > 0 => requested.min(maximum),
            _ => requested,
        }
    }

    /// Seconds until expiry, and until the use of the token is remarked upon.
    fn lifetime(&self, requested: i64, audiences: &[String], bound_to_pod: bool) -> (i64, Option<i64>) {
        let extend = self.lifetimes.extends
            && bound_to_pod
            // 3,607 seconds is how upstream recognises the tokens that the admission plugin projects: no one
            // else requests this number (KEP-1205).
            && requested == WARN_ONLY_EXPIRATION_SECONDS
            && audiences.iter().all(|one| self.api_audiences.contains(one));
        if extend {
            (EXTENDED_EXPIRATION_SECONDS, Some(requested))
        } else {
            (requested, None)
        }
    }
}

fn validate(seconds: i64, spec: &TokenRequestSpec) -> Vec<FieldError> {
    let path = FieldPath::new("spec").child("expirationSeconds");
    let attested = spec.attestations.as_ref().map_or(0, BTreeMap::len);
    let to_webhook = spec
        .bound_object_ref
        .as_ref()
        .is_some_and(BoundObjectReference::is_webhook);
    if attested > 0 && !to_webhook {
        // As upstream: nothing else is looked at.
        let detail = "attestations may only be specified with a webhook bound object reference";
        return vec![attestations(spec, detail)];
    }
    let mut problems = Vec::new();
    if seconds < MIN_EXPIRATION_SECONDS {
        problems.push(FieldError::invalid(
            &path,
            seconds,
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > MAX_EXPIRATION_SECONDS {
        problems.push(FieldError::invalid(
            &path,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    if to_webhook && attested != 1 {
        let detail = "webhook bound requests require exactly one admissionReviewAPIGroups attestation";
        problems.push(attestations(spec, detail));
    }
    problems
}

fn attestations(spec: &TokenRequestSpec, detail: &str) -> FieldError {
    let path = FieldPath::new("spec").child("attestations");
    let value = serde_json::to_string(&spec.attestations).unwrap_or_default();
    FieldError::invalid(&path, Shown(value), detail)
}

impl BoundObjectReference {
    fn is_webhook(&self) -> bool {
        let kinds = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"];
        self.api_version == "admissionregistration.k8s.io/v1" && kinds.contains(&self.kind.as_str())
    }
}

/// Group and version, both empty where there are more than two parts: upstream then goes by the kind alone.
fn group_version(api_version: &str) -> (&str, &str) {
    match api_version.split_once('/') {
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(parts) => parts,
        None => ("", api_version),
    }
}

async fn bind(
    reader: &dyn ObjectReader,
    account: Account<'_>,
    reference: &BoundObjectReference,
) -> Result<Bound, TokenRequestError> {
    let (group, version) = group_version(&reference.api_version);
    let (resource, namespace) = match (group, reference.kind.as_str()) {
        ("", "Pod") => ("pods", account.namespace),
        ("", "Secret") => ("secrets", account.namespace),
        ("", "Node") => ("nodes", ""),
        _ => {
            let slash = if group.is_empty() { "/" } else { "" };
            let separator = if group.is_empty() { "" } else { "/" };
            let gate = if reference.is_webhook() {
                " (feature gate APIServerWebhookAuthenticationToken is disabled)"
            } else {
                ""
            };
            return Err(TokenRequestError::BadRequest(format!(
                "cannot bind token to object of type {slash}{group}{separator}{version}, Kind={}{gate}",
                reference.kind
            )));
        }
    };
    if reference.name.is_empty() {
        return Err(TokenRequestError::BadRequest(
            "Name parameter required.".to_owned(),
        ));
    }
    let problems = syntax::path_segment_name(&reference.name);
    if !problems.is_empty() {
        let (name, problems) = (&reference.name, problems.join(";"));
        return Err(TokenRequestError::BadRequest(format!(
            "Name parameter invalid: {name:?}: {problems}"
        )));
    }
    let found = find(reader, resource, &ObjectKey::new(namespace, &reference.name)).await?;
    let uid = &found.header.uid.0;
    let claim = ObjectClaim {
        name: reference.name.clone(),
        uid: uid.clone(),
    };
    let bound = match resource {
        "pods" => bind_pod(reader, account, &found, claim).await?,
        "secrets" => Bound {
            secret: Some(claim),
            ..Bound::default()
        },
        _ => Bound {
            node: Some(claim),
            ..Bound::default()
        },
    };
    // An empty uid is the present object; the claim has its uid in any case.
    if !reference.uid.is_empty() && reference.uid != *uid {
        return Err(TokenRequestError::Conflict {
            resource: GroupResource::new(group, &reference.kind),
            name: reference.name.clone(),
            cause: format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                reference.uid
            ),
        });
    }
    Ok(bound)
}

async fn bind_pod(
    reader: &dyn ObjectReader,
    account: Account<'_>,
    found: &ReadObject,
    claim: ObjectClaim,
) -> Result<Bound, TokenRequestError> {
    let pod = read_stored("", "v1", "Pod", &found.json)?;
    let pod = PodView::new(pod.root());
    // Else the right to create tokens of one account would give tokens bound to pods of another.
    if pod.service_account() != account.name {
        return Err(TokenRequestError::BadRequest(format!(
            "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
            account.name
        )));
    }
    let node_name = pod.node_name();
    let node = if node_name.is_empty() {
        None
    } else {
        let node = trusted::get(reader, "", "nodes", &ObjectKey::cluster(node_name)).await;
        // A token for a pod on a node that is just gone still names the node, as upstream's does.
        let uid = node.map(|node| node.header.uid.0.clone()).unwrap_or_default();
        Some(ObjectClaim {
            name: node_name.to_owned(),
            uid,
        })
    };
    Ok(Bound {
        pod: Some(claim),
        node,
        secret: None,
    })
}

async fn find(
    reader: &dyn ObjectReader,
    resource: &str,
    key: &ObjectKey,
) -> Result<ReadObject, TokenRequestError> {
    trusted::get(reader, "", resource, key)
        .await
        .ok_or_else(|| TokenRequestError::NotFound {
            resource: GroupResource::new("", resource),
            name: key.name.clone(),
        })
}
