/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Providers include this name for what urma_private.h and urma_provider.h declare. How the library
 * finds devices, which UMDK declares here too, is its own.
 */
#ifndef URMA_DEVICE_H
#define URMA_DEVICE_H

#include "urma_private.h"
#include "urma_provider.h"

#endif
