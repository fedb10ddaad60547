//! The looks of a member for members that lag.
use super::Node;
use crate::handler::Handler;
use crate::lag::LookedSubgroup;
use spindle_core::Time;

impl Node {
    /// Looks for members that begin to lag or no longer do, if it is time, and reports them.
    #[cold]
    pub(super) fn look_at_lags(&mut self, handler: &mut impl Handler, now: Time) {
        if !self.lags.is_due(now) {
            return;
        }
        let (mut found, me) = (vec![], self.control_plane.me);
        for number in self.lags.begin(self.handles.len(), now) {
            let of_subgroup = &self.handles[number];
            let name = &*of_subgroup.name;
            let home = of_subgroup.home().and_then(|home| Some((home, self.member.engine_of(home.0)?)));
            match home {
                Some((home, engine)) => {
                    let stable = engine.deliverable(home.1).unwrap_or(0);
                    let members = &engine.view().members;
                    let frontiers = engine.frontiers(home.1);
                    let frontiers = frontiers.map(|(rank, frontier)| (members[rank.index()], frontier));
                    self.lags.look(number, &LookedSubgroup { name, home, stable }, frontiers, me, &mut found);
                }
                None => self.lags.leave(number, name, me, &mut found),
            }
        }
        for lag in found {
            let _running = self.shared.handler.enter();
            handler.lag(&lag);
        }
    }
}
