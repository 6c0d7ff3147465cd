//! Which of several requests takes effect.

use pitstop_api::condition::ConditionStatus;
use pitstop_api::resize::conditions;
use pitstop_e2e::resizes::{Group, MI, api, groups, resize, web};
use pitstop_e2e::{Result, SHORT, pods, stories, until};
use serde_json::json;

use super::{BEFORE, delete, larger, on_old_cluster, succeeds, until_groups};

#[test]
fn the_later_request_counts_until_it_is_deleted() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        succeeds(ns, resize("first", "app", &json!({"limits": {"cpu": "300m"}}))).await?;
        let [container, pod] = BEFORE;
        let first = [Group { quota: 30_000, ..container }, Group { quota: 50_000, ..pod }];
        assert_eq!(groups(&ns.pod("web").await?, "app")?, first);
        // A request for another container, beside the first.
        succeeds(ns, resize("beside", "proxy", &json!({"limits": {"memory": "192Mi"}}))).await?;
        let beside =
            |[container, pod]: [Group; 2]| [container, Group { memory: pod.memory + 64 * MI, ..pod }];
        assert_eq!(groups(&ns.pod("web").await?, "app")?, beside(first));
        let second = json!({"limits": {"cpu": "400m", "memory": "256Mi"}});
        succeeds(ns, resize("second", "app", &second)).await?;
        let second = [
            Group { quota: 40_000, memory: 256 * MI, ..container },
            Group { quota: 60_000, memory: 384 * MI, ..pod },
        ];
        assert_eq!(groups(&ns.pod("web").await?, "app")?, beside(second));
        delete(ns, "second").await?;
        until_groups(ns, beside(first)).await?;
        delete(ns, "first").await?;
        until_groups(ns, beside(BEFORE)).await?;
        delete(ns, "beside").await?;
        let after = until_groups(ns, BEFORE).await?;
        pods::assert_untouched(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")
    })
}

#[test]
fn the_earlier_request_may_go_first() -> Result<()> {
    on_old_cluster(async |ns| {
        ns.start_pod(web()).await?;
        succeeds(ns, resize("first", "app", &json!({"limits": {"cpu": "300m"}}))).await?;
        succeeds(ns, resize("second", "app", &json!({"limits": {"cpu": "400m"}}))).await?;
        delete(ns, "first").await?;
        let [container, pod] = BEFORE;
        let second = [Group { quota: 40_000, ..container }, Group { quota: 60_000, ..pod }];
        until_groups(ns, second).await?;
        // A third request builds on the second.
        succeeds(ns, resize("third", "app", &json!({"limits": {"cpu": "x2"}}))).await?;
        until_groups(ns, [Group { quota: 80_000, ..container }, Group { quota: 100_000, ..pod }]).await?;
        delete(ns, "third").await?;
        until_groups(ns, second).await?;
        delete(ns, "second").await?;
        until_groups(ns, BEFORE).await?;
        Ok(())
    })
}

#[test]
fn what_a_quota_does_not_admit_any_more_is_not_given_again() -> Result<()> {
    on_old_cluster(async |ns| {
        ns.start_pod(web()).await?;
        succeeds(ns, larger("first")).await?;
        succeeds(ns, resize("second", "app", &json!({"requests": {"cpu": "110m"}}))).await?;
        stories::quota(ns, "220m", "200m").await?;
        delete(ns, "second").await?;
        until_groups(ns, BEFORE).await?;
        let condition = until("the first one to tell why", SHORT, async || {
            let status = api(ns).get("first").await?.status.unwrap_or_default();
            Ok(status.conditions.into_iter().find(|c| c.type_ == conditions::IN_FORCE))
        });
        let condition = condition.await?;
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::False, "Quota"));
        Ok(())
    })
}
