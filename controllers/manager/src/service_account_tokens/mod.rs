//! Fills Secrets of type `kubernetes.io/service-account-token` with a token of their account, and deletes those whose account
//! is gone.
//!
//! Watches: those Secrets, and ServiceAccounts, whose going wakes the Secrets that name them. The caches may be behind: an
//! account that they do not have is looked up once more of the server. A Secret that goes is taken out of the list of its
//! account. Upstream's role is that of the controller manager itself.

mod cleaner;
pub(crate) mod views;

pub(crate) use cleaner::ROW as CLEANER_ROW;

use crate::config::Config;
use crate::context::{ControllerContext, TokenOf, TokenSigner};
use crate::descriptor::ControllerDescriptor;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use machinery_client::{
    ApiResource, Change, Client, ClientError, DeleteOptions, Informer, ListWatch, Object,
};
use machinery_meta::{ObjectKey, Uid};
use machinery_reconcile::{Outcome, QueueKey, ReconcileError, Reconciler};
use serde_json::{Value, json};
use std::sync::Arc;
use views::{AccountView, BY_ACCOUNT, TokenView};

pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "serviceaccount-token-controller",
    queue: "serviceaccount_tokens_service",
    service_account: "",
    default: true,
    start,
};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// The Secrets that have tokens, shared by the controllers of this folder.
fn token_secrets(context: &ControllerContext) -> Informer<TokenView> {
    let source = ListWatch::of::<Secret>().fields(format!("type={TYPE}"));
    context.informers.informer(source)
}

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let Some(sign) = context.token_signer.clone() else {
        tracing::info!("no token is kept in a Secret: there is no key to sign with");
        return Box::pin(std::future::pending());
    };
    let secrets = token_secrets(context);
    let accounts: Informer<AccountView> = context.informers.of::<ServiceAccount, _>();
    let named = secrets.clone();
    let controller = ROW
        .controller(&context.runtime)
        .watches(&secrets, |change| [TokenKey::of(change.latest())])
        .watches(&accounts, move |change| of_gone_account(&named, change));
    controller.run(Tokens {
        client: context.informers.client().clone(),
        secrets,
        accounts,
        sign,
        config: Arc::clone(&context.config),
    })
}

/// A Secret, and the account that it named when it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct TokenKey {
    secret: ObjectKey,
    uid: Uid,
    account: Box<str>,
    /// Empty where the Secret does not say it yet.
    account_uid: Box<str>,
}

impl QueueKey for TokenKey {
    fn namespace(&self) -> &str {
        &self.secret.namespace
    }
}

impl TokenKey {
    fn of(secret: &Object<TokenView>) -> Self {
        Self {
            secret: secret.key().clone(),
            uid: secret.uid().clone(),
            account: secret.account.clone(),
            account_uid: secret.account_uid.clone(),
        }
    }

    fn account(&self) -> ObjectKey {
        ObjectKey::new(&self.secret.namespace, &*self.account)
    }

    fn is_of(&self, uid: &Uid) -> bool {
        self.account_uid.is_empty() || *self.account_uid == *uid.0
    }
}

/// Secrets that name an account which is gone, or another by now.
fn of_gone_account(secrets: &Informer<TokenView>, change: &Change<AccountView>) -> Vec<TokenKey> {
    let Some(old) = &change.old else {
        return Vec::new();
    };
    if change.new.as_ref().is_some_and(|new| new.uid() == old.uid()) {
        return Vec::new();
    }
    let named = secrets.by_index(BY_ACCOUNT, &old.key().to_string());
    named.iter().map(|secret| TokenKey::of(secret)).collect()
}

struct Tokens {
    client: Client,
    secrets: Informer<TokenView>,
    accounts: Informer<AccountView>,
    sign: TokenSigner,
    config: Arc<Config>,
}

impl Reconciler for Tokens {
    type Key = TokenKey;

    fn reconcile<'a>(&'a self, key: &'a TokenKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            if key.account.is_empty() {
                return Ok(Outcome::Done);
            }
            let secret = self.secrets.get(&key.secret).filter(|own| *own.uid() == key.uid);
            let (doing, done) = match &secret {
                None => ("removing a secret's reference", self.remove_secret(key).await),
                Some(secret) => match self.account(key).await {
                    Ok(None) => ("deleting a service account token", self.delete(key).await),
                    Ok(Some(uid)) => (
                        "populating a service account token",
                        self.fill(key, secret, &uid).await,
                    ),
                    Err(error) => ("getting the service account of a token", Err(error)),
                },
            };
            match done {
                // Gone, or written by another: then there is another event.
                Err(error) if error.is_not_found() => Ok(Outcome::Done),
                Err(error) if error.is_conflict() && secret.is_some() => Ok(Outcome::Done),
                Err(error) => Err(ReconcileError::doing(doing)(error)),
                Ok(()) => Ok(Outcome::Done),
            }
        })
    }
}

impl Tokens {
    /// The uid of the account, as the server has it where the cache does not.
    async fn account(&self, key: &TokenKey) -> Result<Option<Uid>, ClientError> {
        let cached = self.accounts.get(&key.account());
        if let Some(cached) = cached.filter(|own| key.is_of(own.uid())) {
            return Ok(Some(cached.uid().clone()));
        }
        let resource = ApiResource::of::<ServiceAccount>();
        match self.client.get_as::<Value>(&resource, &key.account()).await {
            Ok(live) => {
                let uid = Uid(live["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
                Ok(Some(uid).filter(|uid| key.is_of(uid)))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, key: &TokenKey) -> Result<(), ClientError> {
        let resource = ApiResource::of::<Secret>();
        let deleted = self
            .client
            .delete(&resource, &key.secret, &DeleteOptions::uid(&key.uid));
        deleted.await.map(drop)
    }

    fn is_complete(&self, secret: &TokenView) -> bool {
        let authority = &self.config.root_ca;
        let trusts = authority.is_empty() || secret.has_authority(&STANDARD.encode(authority));
        secret.has_token && secret.has_namespace && trusts
    }

    /// Adds missing fields to the live Secret; those that it has stay.
    async fn fill(&self, key: &TokenKey, cached: &Object<TokenView>, uid: &Uid) -> Result<(), ClientError> {
        if self.is_complete(cached) {
            return Ok(());
        }
        let resource = ApiResource::of::<Secret>();
        let mut live: Value = self.client.get_as(&resource, &key.secret).await?;
        let seen = cached.revision.to_string();
        if live["metadata"]["resourceVersion"] != seen.as_str() {
            // There will be an event of the newer one.
            return Ok(());
        }
        if !cached.has_namespace {
            live["data"]["namespace"] = STANDARD.encode(&key.secret.namespace).into();
        }
        if !self.config.root_ca.is_empty() {
            live["data"]["ca.crt"] = STANDARD.encode(&self.config.root_ca).into();
        }
        if !cached.has_token {
            let token = (self.sign)(TokenOf {
                namespace: &key.secret.namespace,
                account: &key.account,
                account_uid: &uid.0,
                secret: &key.secret.name,
            });
            match token {
                Ok(token) => live["data"]["token"] = STANDARD.encode(token).into(),
                // Another attempt would fail as well.
                Err(error) => {
                    tracing::error!(error, secret = %key.secret, "signing a service account token");
                    return Ok(());
                }
            }
        }
        live["metadata"]["annotations"][ACCOUNT_NAME] = json!(key.account);
        live["metadata"]["annotations"][ACCOUNT_UID] = json!(uid.0);
        self.client
            .update(&resource, &key.secret, "", &live)
            .await
            .map(drop)
    }

    /// Takes a Secret that is gone out of the list of its account.
    async fn remove_secret(&self, key: &TokenKey) -> Result<(), ClientError> {
        let account = self.accounts.get(&key.account());
        let lists = account.filter(|own| key.is_of(own.uid()) && own.lists(&key.secret.name));
        if lists.is_none() {
            return Ok(());
        }
        let resource = ApiResource::of::<ServiceAccount>();
        let mut live: Value = self.client.get_as(&resource, &key.account()).await?;
        let uid = Uid(live["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        if !key.is_of(&uid) {
            return Ok(());
        }
        if let Some(listed) = live["secrets"].as_array_mut() {
            listed.retain(|own| own["name"] != key.secret.name.as_str());
        }
        self.client
            .update(&resource, &key.account(), "", &live)
            .await
            .map(drop)
    }
}
