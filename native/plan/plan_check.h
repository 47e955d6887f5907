// Whether every index of a lowered plan points at something, and every size fits its neighbour.
#ifndef ES_PLAN_PLAN_CHECK_H
#define ES_PLAN_PLAN_CHECK_H

#include "edgeserve.h"

// ES_OK, ES_ERR_NULL, or ES_ERR_RANGE.
es_status es_plan_check(const es_plan *plan);

#endif
