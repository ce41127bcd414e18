//! A plugin and its answers that are still good. Of several pods that want the same at once one asks, and the others wait for its answer.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use machinery_runtime::Runtime;
use node_volume::ObjectSource;
use parking_lot::Mutex;

use super::account::{self, Account, Asking};
use super::config::{CredentialProvidersConfig, ProviderConfig};
use super::plugin::{self, AccountData, Answer, CacheKeyType};
use crate::images::credentials::{self, Credential, Keyed};
use crate::images::pull_records::CredentialSource;
use crate::images::turns::Turns;
use crate::pods::namespace;

/// Answers that are kept; a further one is not, until others have expired.
const ANSWERS_MAX: usize = 1_024;
/// Runs of one plugin at once.
const RUNS_MAX: usize = 8;
const GLOBAL: &str = "<global>";

/// Images and account that an answer counts for.
type AnswerKey = (String, Option<AccountKey>);

/// An account, by the parts on which an answer depends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct AccountKey {
    names: [String; 3],
    annotations: Vec<(String, String)>,
    token_hash: Option<String>,
}

impl From<&Account> for AccountKey {
    fn from(account: &Account) -> Self {
        let own = &account.credential;
        Self {
            names: [own.namespace.clone(), own.name.clone(), own.uid.clone()],
            annotations: account.data.annotations.clone().into_iter().collect(),
            token_hash: account.token_hash.clone(),
        }
    }
}

/// See the module.
pub(super) struct Provider {
    runtime: Runtime,
    client: Client,
    config: CredentialProvidersConfig,
    own: ProviderConfig,
    answers: Mutex<HashMap<AnswerKey, (Answer, Duration)>>,
    /// Questions under way, each held by the one that asks.
    asking: Mutex<HashMap<AnswerKey, Weak<tokio::sync::Mutex<()>>>>,
    runs: Turns,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.own.name)
            .finish_non_exhaustive()
    }
}

impl Provider {
    pub(super) fn new(
        runtime: &Runtime,
        client: &Client,
        config: &CredentialProvidersConfig,
        own: ProviderConfig,
    ) -> Self {
        Self {
            runtime: runtime.clone(),
            client: client.clone(),
            config: config.clone(),
            own,
            answers: Mutex::default(),
            asking: Mutex::default(),
            runs: Turns::new(RUNS_MAX),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.own.name
    }

    /// Credentials for a repository; none where the plugin does not match it, or passes this pod.
    pub(super) async fn provide(
        &self,
        pod: &Pod,
        repository: &str,
        objects: &dyn ObjectSource,
    ) -> Result<Vec<Keyed>, String> {
        let mut images = self.own.match_images.iter();
        if !images.any(|image| credentials::matches(image, repository)) {
            return Ok(Vec::new());
        }
        let attributes = self.own.token_attributes.as_ref();
        let account = match account::of(&self.client, pod, attributes, objects).await? {
            Asking::Passed => return Ok(Vec::new()),
            Asking::Without => None,
            Asking::With(account) => Some(*account),
        };
        let answer = self.answer(namespace(pod), repository, account.as_ref()).await?;
        let source = match account {
            None => CredentialSource::Node,
            Some(account) => CredentialSource::ServiceAccount(account.credential),
        };
        let keyed = answer.auth.into_iter().map(|(registry, auth)| {
            let source = source.clone();
            (credentials::key(&registry), Credential { auth, source })
        });
        Ok(keyed.collect())
    }

    async fn answer(
        &self,
        namespace: &str,
        repository: &str,
        account: Option<&Account>,
    ) -> Result<Answer, String> {
        let of = account.map(AccountKey::from);
        if let Some(known) = self.known(repository, of.as_ref()) {
            return Ok(known);
        }
        let question = self.question((repository.to_owned(), of.clone()));
        let _asking = question.lock().await;
        if let Some(known) = self.known(repository, of.as_ref()) {
            return Ok(known);
        }
        let _turn = self.runs.take(namespace).await;
        let without = AccountData::default();
        let data = account.map_or(&without, |account| &account.data);
        let asked = plugin::run(&self.runtime, &self.config, &self.own, repository, data).await;
        let answer = asked.map_err(|why| {
            format!("failed to get credential from external registry credential provider: {why}")
        })?;
        if account.is_some_and(|account| is_echo(account, &answer)) {
            return Err(
                "credential provider plugin returned the service account token as the password which is not allowed when service \
                 account cache type is not set to 'Token'"
                    .to_owned(),
            );
        }
        self.keep(repository, of, &answer);
        Ok(answer)
    }

    /// The lock of a question, the same for all that ask it now.
    fn question(&self, key: AnswerKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut asking = self.asking.lock();
        asking.retain(|_, question| question.strong_count() > 0);
        let known = asking.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let own = Arc::default();
            asking.insert(key, Arc::downgrade(&own));
            own
        })
    }

    /// An answer that is still good: of the image, its registry, or all.
    fn known(&self, repository: &str, of: Option<&AccountKey>) -> Option<Answer> {
        let now = self.runtime.monotonic();
        let answers = self.answers.lock();
        [repository, registry_of(repository), GLOBAL]
            .into_iter()
            .find_map(|base| {
                let (answer, until) = answers.get(&(base.to_owned(), of.cloned()))?;
                (*until >= now).then(|| answer.clone())
            })
    }

    fn keep(&self, repository: &str, of: Option<AccountKey>, answer: &Answer) {
        let nanoseconds = answer.cache_nanoseconds.unwrap_or(self.own.cache_nanoseconds);
        let Some(good_for) = u64::try_from(nanoseconds).ok().filter(|own| *own > 0) else {
            return;
        };
        let base = match answer.key_type {
            CacheKeyType::Image => repository,
            CacheKeyType::Registry => registry_of(repository),
            CacheKeyType::Global => GLOBAL,
        };
        let now = self.runtime.monotonic();
        let mut answers = self.answers.lock();
        if answers.len() >= ANSWERS_MAX {
            answers.retain(|_, (_, until)| *until >= now);
        }
        let key = (base.to_owned(), of);
        if answers.len() < ANSWERS_MAX || answers.contains_key(&key) {
            answers.insert(key, (answer.clone(), now + Duration::from_nanos(good_for)));
        }
    }
}

/// Reports whether an answer has the token itself as a password, and yet counts for other tokens of the account.
fn is_echo(account: &Account, answer: &Answer) -> bool {
    let is_token = |auth: &node_cri::v1::AuthConfig| auth.password == account.data.token;
    account.token_hash.is_none() && answer.auth.iter().any(|(_, auth)| is_token(auth))
}

fn registry_of(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
