"""Who may open a folder, and what may somebody open? Groups lie in groups, also in cycles, and folders in folders.

Run it on the embedded log, and open its page: eddy run examples/permissions.py --http 8080

    members      id -> {"name"}: users and groups
    memberships  any key -> {"member", "group"}: a user or a group in a group
    folders      id -> {"name", "parent"}
    grants       any key -> {"member", "folder"}: a right to open a folder, and the folders below it
"""

import eddy

topology = eddy.Topology("permissions")
for name in ("members", "memberships", "folders", "grants"):
    topology.table(name, key=eddy.String, value=eddy.Json())

members, folders = eddy.live_table("members", key="id"), eddy.live_table("folders", key="id")
memberships, grants = eddy.live_table("memberships", key="id"), eddy.live_table("grants", key="id")
queries = eddy.Queries()


def people(member):
    """The members of a group, of its groups, and so on."""
    within = memberships.where(memberships.group == member.id)
    return within.nest(person=lambda row: members.where(members.id == row.member).nest(people=people)).pluck("person")


def holders(folder):
    """Users and groups with a grant for a folder itself."""
    given = grants.where(grants.folder == folder.id)
    return given.nest(person=lambda row: members.where(members.id == row.member).nest(people=people)).pluck("person")


def above(folder):
    return folders.where(folders.id == folder.parent).nest(granted=holders, above=above)


@queries.query
def who_may_open(folder: str) -> eddy.Query:
    """Who may open a folder: by a grant for it, or for a folder above it."""
    return folders.where(folders.id == folder).nest(granted=holders, above=above)


def below(folder):
    return folders.where(folders.parent == folder.id).order_by(folders.name).nest(below=below)


def opens(member):
    """The folders of the grants of a user or a group, with all below them."""
    given = grants.where(grants.member == member.id)
    return given.nest(folder=lambda row: folders.where(folders.id == row.folder).nest(below=below)).pluck("folder")


def groups(member):
    """The groups that a user or a group is in, and their groups, with what each of them opens."""
    within = memberships.where(memberships.member == member.id)
    return within.nest(group=lambda row: members.where(members.id == row.group).nest(opens=opens, groups=groups)).pluck(
        "group"
    )


@queries.query
def what_may_open(member: str) -> eddy.Query:
    """What a user or a group may open, by grants of its own and of its groups."""
    return members.where(members.id == member).nest(opens=opens, groups=groups)
