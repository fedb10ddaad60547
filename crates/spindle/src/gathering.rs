//! Who is there while a group is being founded, or while somebody waits to be let in.
use spindle_core::MemberId;
use std::fmt;

/// Somebody who waits for the group to be complete, or is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// Its id.
    pub id: MemberId,
    /// Its process.
    pub pid: u32,
}

/// Who is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gathering {
    /// How many members the group is founded by; in one that runs, how many it has.
    pub members: u32,
    /// Who is here, by id.
    pub present: Vec<Present>,
}

impl Gathering {
    /// How many have yet to come.
    pub fn missing(&self) -> u32 {
        self.members.saturating_sub(self.present.len() as u32)
    }
}

impl fmt::Display for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} members are here (", self.present.len(), self.members)?;
        for (i, Present { id, pid }) in self.present.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}member {id}: process {pid}")?;
        }
        match self.missing() {
            0 => write!(f, "), not all of them ready"),
            missing => write!(f, "), {missing} missing"),
        }
    }
}
