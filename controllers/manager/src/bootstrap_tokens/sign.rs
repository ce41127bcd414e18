//! Signatures of `cluster-info` by each token that is for signing (upstream's `bootstrapsigner`).

use super::jws::detached;
use super::view::{Expiration, TokenView};
use super::{NAMESPACE, TYPE, tokens};
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use machinery_client::client::decode;
use machinery_client::{ApiResource, Client, ClientError, Edit, Informer, ListWatch};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use std::collections::BTreeMap;

/// Upstream has it off until an installer turns it on.
pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "bootstrap-signer-controller",
    queue: "bootstrap_signer_queue",
    service_account: "bootstrap-signer",
    default: true,
    start,
};

const MAP_NAMESPACE: &str = "kube-public";
const MAP: &str = "cluster-info";
const SIGNED: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
const SECRET_PREFIX: &str = "bootstrap-token-";

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let tokens: Informer<TokenView> = tokens(context);
    let source = ListWatch::of::<ConfigMap>().fields(format!("metadata.name={MAP}"));
    let maps: Informer<()> = context.informers.informer(source.in_namespace(MAP_NAMESPACE));
    // There is one map: whatever happens, it is the one to look at.
    let controller = ROW
        .controller(&context.runtime)
        .watches(&tokens, |_| [ObjectKey::new(MAP_NAMESPACE, MAP)])
        .watches(&maps, |_| [ObjectKey::new(MAP_NAMESPACE, MAP)]);
    controller.run(Signer {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        maps,
    })
}

struct Signer {
    client: Client,
    runtime: Runtime,
    maps: Informer<()>,
}

impl Reconciler for Signer {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            if self.maps.get(key).is_none() {
                return Ok(Outcome::Done);
            }
            match self.sign(key).await {
                // Then there is another event.
                Err(error) if error.is_conflict() || error.is_not_found() => Ok(Outcome::Done),
                other => other
                    .map(|()| Outcome::Done)
                    .map_err(ReconcileError::doing("signing cluster-info")),
            }
        })
    }
}

impl Signer {
    async fn sign(&self, key: &ObjectKey) -> Result<(), ClientError> {
        let (maps, secrets) = (ApiResource::of::<ConfigMap>(), ApiResource::of::<Secret>());
        let stored = self.client.get(&maps, key).await?;
        let map: ConfigMap = decode(MAP, &stored)?;
        let query = [("fieldSelector", format!("type={TYPE}"))];
        let tokens: List<Secret> = self.client.list_as(&secrets, NAMESPACE, &query).await?;
        let data = map.data.unwrap_or_default();
        let now = self.runtime.now();
        let tokens = tokens
            .items
            .iter()
            .filter_map(|secret| signing_token(secret, now));
        let Some(signed) = signed(&data, tokens).filter(|signed| *signed != data) else {
            return Ok(());
        };
        let mut edit = Edit::of(&maps, &stored)?;
        edit.set("data", &signed)?;
        self.client.update(&maps, key, "", edit.body()).await.map(drop)
    }
}

/// Id and secret of a token that may sign now (upstream's `validateSecretForSigning`).
pub(super) fn signing_token(secret: &Secret, now: Timestamp) -> Option<(String, String)> {
    let text = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        String::from_utf8(value.0.clone()).ok()
    };
    let named = secret.metadata.name.as_deref()?.strip_prefix(SECRET_PREFIX)?;
    let id = text("token-id").filter(|id| id == named && is_id(id))?;
    let secret = text("token-secret").filter(|secret| !secret.is_empty())?;
    let is_over = Expiration::of(&text("expiration").unwrap_or_default()).is_over(now);
    let is_for_signing = text("usage-bootstrap-signing").as_deref() == Some("true");
    (is_for_signing && !is_over).then_some((id, secret))
}

fn is_id(id: &str) -> bool {
    id.len() == 6
        && id
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The map's data with the signatures of these tokens and no others; `None` where it has nothing to sign.
pub(super) fn signed(
    data: &BTreeMap<String, String>,
    tokens: impl Iterator<Item = (String, String)>,
) -> Option<BTreeMap<String, String>> {
    let content = data.get(SIGNED)?;
    let others = data.iter().filter(|(key, _)| !key.starts_with(SIGNATURE_PREFIX));
    let others = others.map(|(key, value)| (key.clone(), value.clone()));
    let signatures = tokens.map(|(id, secret)| {
        let signature = detached(content, &id, &secret);
        (format!("{SIGNATURE_PREFIX}{id}"), signature)
    });
    Some(others.chain(signatures).collect())
}
