package tuning

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// cpuGroup is one level of the control group hierarchy that rations this process's CPU time.
type cpuGroup struct {
	r Reader
	// dir is the level's directory as the host names it.
	dir string
	v2  bool
}

// cpuGroups returns the levels from the process's own group up to the mount point, because a quota binds at every level.
// It is empty when no cpu controller is mounted or its files are not visible. A cpu controller of version 1 goes before
// the unified hierarchy, because a controller is in only one of them (cgroups(7)).
func (r Reader) cpuGroups() []cpuGroup {
	fs, err := procfs.NewFS(r.path("/proc"))
	if err != nil {
		return nil
	}
	self, err := fs.Self()
	if err != nil {
		return nil
	}
	memberships, err := self.Cgroups()
	if err != nil {
		return nil
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return nil
	}
	var member *procfs.Cgroup
	v2 := true
	for i, m := range memberships {
		if slices.Contains(m.Controllers, "cpu") {
			member, v2 = &memberships[i], false
			break
		}
		if m.HierarchyID == 0 {
			member = &memberships[i]
		}
	}
	if member == nil {
		return nil
	}
	for _, m := range mounts {
		_, cpu := m.SuperOptions["cpu"]
		if v2 && m.FSType == "cgroup2" || !v2 && m.FSType == "cgroup" && cpu {
			return r.levels(m.MountPoint, belowMount(member.Path, m.Root), v2)
		}
	}
	return nil
}

// belowMount turns a membership path into one below the mount point, which shows the hierarchy from mountRoot down. A path
// outside of it (a container that sees the host's names) leaves the mount point itself, the container's own group.
func belowMount(member, mountRoot string) string {
	member = path.Clean("/" + member)
	if mountRoot == "/" {
		return member
	}
	if rest, ok := strings.CutPrefix(member, mountRoot); ok && (rest == "" || rest[0] == '/') {
		return path.Clean("/" + rest)
	}
	return "/"
}

func (r Reader) levels(mountPoint, below string, v2 bool) []cpuGroup {
	var groups []cpuGroup
	for {
		groups = append(groups, cpuGroup{r: r, dir: path.Join(mountPoint, below), v2: v2})
		if below == "/" {
			return groups
		}
		below = path.Dir(below)
	}
}

// quota is the number of CPUs' worth of time that the level grants; not ok when it sets no limit. Version 2 has cpu.max
// (Documentation/admin-guide/cgroup-v2.rst), version 1 a pair of files (Documentation/scheduler/sched-bwc.rst), in us.
func (g cpuGroup) quota() (float64, bool) {
	var quota, period string
	if g.v2 {
		quota, period, _ = strings.Cut(g.r.text(g.dir+"/cpu.max"), " ")
	} else {
		quota, period = g.r.text(g.dir+"/cpu.cfs_quota_us"), g.r.text(g.dir+"/cpu.cfs_period_us")
	}
	q, err := strconv.ParseFloat(quota, 64)
	if err != nil || q <= 0 { // "max" and -1: no limit
		return 0, false
	}
	p, err := strconv.ParseFloat(period, 64)
	if err != nil || p <= 0 {
		return 0, false
	}
	return q / p, true
}
