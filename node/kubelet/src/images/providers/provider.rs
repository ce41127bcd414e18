//! A plugin, its answers that are still good, and its runs under way. Pods that want the same while it is run share the run, whichever of
//! them began it. A run begins once the pod's own namespace has its turn: none waits for the turn of another namespace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use machinery_runtime::Runtime;
use node_volume::ObjectSource;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::account::{self, Account, Asking};
use super::answers::{AccountKey, AnswerKey, Answers};
use super::config::{CredentialProvidersConfig, ProviderConfig};
use super::plugin::{self, AccountData, Answer, CacheKeyType};
use crate::images::credentials::{self, Credential, Keyed};
use crate::images::pull_records::CredentialSource;
use crate::images::turns::{Turn, Turns};
use crate::pods::namespace;

/// Runs of one plugin at once.
const RUNS_MAX: usize = 8;
const GLOBAL: &str = "<global>";

/// A run, for all that want its answer; it ends with the last of them.
type Run = Shared<BoxFuture<'static, Result<Answer, String>>>;
type WeakRun = WeakShared<BoxFuture<'static, Result<Answer, String>>>;

/// See the module.
pub(super) struct Provider {
    client: Client,
    runs: Turns,
    shared: Arc<SharedState>,
}

/// Parts of a provider that its runs have, too.
struct SharedState {
    runtime: Runtime,
    config: CredentialProvidersConfig,
    own: ProviderConfig,
    answers: Mutex<Answers>,
    under_way: Mutex<HashMap<AnswerKey, WeakRun>>,
    /// A run has begun or ended.
    changed: Notify,
}

/// A question of a pod.
#[derive(Clone)]
struct Question {
    namespace: String,
    repository: String,
    account: Option<Account>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider")
            .field("name", &self.shared.own.name)
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
            client: client.clone(),
            runs: Turns::new(RUNS_MAX),
            shared: Arc::new(SharedState {
                runtime: runtime.clone(),
                config: config.clone(),
                own,
                answers: Mutex::default(),
                under_way: Mutex::default(),
                changed: Notify::new(),
            }),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.shared.own.name
    }

    /// Credentials for a repository; none where the plugin does not match it, or passes this pod.
    pub(super) async fn provide(
        &self,
        pod: &Pod,
        repository: &str,
        objects: &dyn ObjectSource,
    ) -> Result<Vec<Keyed>, String> {
        let mut images = self.shared.own.match_images.iter();
        if !images.any(|image| credentials::matches(image, repository)) {
            return Ok(Vec::new());
        }
        let attributes = self.shared.own.token_attributes.as_ref();
        let account = match account::of(&self.client, pod, attributes, objects).await? {
            Asking::Passed => return Ok(Vec::new()),
            Asking::Without => None,
            Asking::With(account) => Some(*account),
        };
        let question = Question {
            namespace: namespace(pod).to_owned(),
            repository: repository.to_owned(),
            account: account.clone(),
        };
        let answer = self.answer(question).await?;
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

    /// The answer that is kept, or that of a run under way, or of an own one once the pod's namespace has its turn: whichever is first.
    async fn answer(&self, question: Question) -> Result<Answer, String> {
        let namespace = question.namespace.clone();
        // Its place among the namespace's questions is kept until then.
        let mut turn = std::pin::pin!(self.runs.take(&namespace));
        let mut own = None;
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            match self.shared.next(&question, own) {
                Next::Known(answer) => return Ok(answer),
                Next::Under(run) => return run.await,
                Next::Wait => {}
            }
            own = tokio::select! {
                biased;
                turn = &mut turn => Some(turn),
                () = changed => None,
            };
        }
    }
}

/// Next step of a question.
enum Next {
    Known(Answer),
    /// A run gives the answer.
    Under(Run),
    Wait,
}

impl SharedState {
    /// Begins a run where there is a turn for one, and neither a kept answer nor a run under way.
    fn next(self: &Arc<Self>, question: &Question, turn: Option<Turn>) -> Next {
        let key = question.key();
        let mut under_way = self.under_way.lock();
        if let Some(known) = self.known(&key) {
            return Next::Known(known);
        }
        if let Some(run) = under_way.get(&key).and_then(WeakShared::upgrade) {
            return Next::Under(run);
        }
        let Some(turn) = turn else { return Next::Wait };
        let (own, question) = (Arc::clone(self), question.clone());
        let run = async move {
            let _turn = turn;
            let answer = own.run(&question).await;
            own.ended(question, &answer);
            answer
        };
        let run = run.boxed().shared();
        under_way.retain(|_, run| run.upgrade().is_some());
        under_way.extend(run.downgrade().map(|weak| (key, weak)));
        drop(under_way);
        self.changed.notify_waiters();
        Next::Under(run)
    }

    async fn run(&self, question: &Question) -> Result<Answer, String> {
        let account = question.account.as_ref();
        let without = AccountData::default();
        let data = account.map_or(&without, |account| &account.data);
        let outcome = plugin::run(&self.runtime, &self.config, &self.own, &question.repository, data).await;
        let answer = outcome.map_err(|why| {
            format!("failed to get credential from external registry credential provider: {why}")
        })?;
        if account.is_some_and(|account| is_echo(account, &answer)) {
            return Err(
                "credential provider plugin returned the service account token as the password which is not allowed when service \
                 account cache type is not set to 'Token'"
                    .to_owned(),
            );
        }
        Ok(answer)
    }

    /// A run has ended: its answer is kept, and later questions begin another.
    fn ended(&self, question: Question, answer: &Result<Answer, String>) {
        {
            let mut under_way = self.under_way.lock();
            under_way.remove(&question.key());
            if let Ok(answer) = answer {
                self.keep(question, answer);
            }
        }
        self.changed.notify_waiters();
    }

    /// An answer that is still good: of the image, its registry, or all.
    fn known(&self, (repository, account): &AnswerKey) -> Option<Answer> {
        let now = self.runtime.monotonic();
        let answers = self.answers.lock();
        let bases = [repository.as_str(), registry_of(repository), GLOBAL].into_iter();
        let mut found = bases.filter_map(|base| answers.get(&(base.to_owned(), account.clone()), now));
        found.next().cloned()
    }

    fn keep(&self, question: Question, answer: &Answer) {
        let nanoseconds = answer.cache_nanoseconds.unwrap_or(self.own.cache_nanoseconds);
        let Some(good_for) = u64::try_from(nanoseconds).ok().filter(|own| *own > 0) else {
            return;
        };
        let (repository, account) = question.key();
        let base = match answer.key_type {
            CacheKeyType::Image => repository.as_str(),
            CacheKeyType::Registry => registry_of(&repository),
            CacheKeyType::Global => GLOBAL,
        };
        let now = self.runtime.monotonic();
        let until = now + Duration::from_nanos(good_for);
        let key = (base.to_owned(), account);
        let mut answers = self.answers.lock();
        answers.keep(key, answer, &question.namespace, [now, until]);
    }
}

impl Question {
    fn key(&self) -> AnswerKey {
        let account = self.account.as_ref().map(AccountKey::from);
        (self.repository.clone(), account)
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
